"""Generated with grpcio-tools 1.85.1 from ../proto; do not edit.

    python -m grpc_tools.protoc -I../proto --python_out=. ../proto/podresources_v1.proto
"""
