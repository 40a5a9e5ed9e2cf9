// Command reflection prints what Go knows about the published Kubernetes types and no document says: for every
// struct its JSON names in order, pointers, omitempty and omitzero, protobuf numbers, strategic-merge keys, and the name
// of its OpenAPI schema. tools/schemas/build.py joins this with the OpenAPI documents.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

type field struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Pointer  bool   `json:"pointer,omitempty"`
	Inline   bool   `json:"inline,omitempty"`
	Omit     string `json:"omit,omitempty"`
	Protobuf string `json:"protobuf,omitempty"`
	Strategy string `json:"strategy,omitempty"`
	MergeKey string `json:"mergeKey,omitempty"`
}

type structure struct {
	Model  string  `json:"model,omitempty"`
	Fields []field `json:"fields"`
}

type output struct {
	Kinds   map[string]map[string]string `json:"kinds"`
	Structs map[string]structure         `json:"structs"`
	Named   map[string]string            `json:"named"`
}

var out = output{map[string]map[string]string{}, map[string]structure{}, map[string]string{}}

// Types whose JSON form is their own, not that of their fields.
var opaque = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "microtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "fields",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "intorstring",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "json",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "json",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "json",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "json",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaProps":              "json",
}

func qualified(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

func typeOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		return typeOf(t.Elem())
	}
	if name, found := opaque[qualified(t)]; found {
		return name
	}
	switch t.Kind() {
	case reflect.Struct:
		visit(t)
		return qualified(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + typeOf(t.Elem())
	case reflect.Map:
		key := ""
		if t.Key().PkgPath() != "" {
			key = t.Key().String()
		}
		return "{" + key + "}" + typeOf(t.Elem())
	case reflect.Interface:
		return "raw"
	default:
		if t.PkgPath() != "" && t.Kind() == reflect.String {
			out.Named[qualified(t)] = "string"
			return "string:" + t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:] + "." + t.Name()
		}
		return t.Kind().String()
	}
}

func visit(t reflect.Type) {
	name := qualified(t)
	if _, seen := out.Structs[name]; seen {
		return
	}
	out.Structs[name] = structure{}
	var s structure
	if named, ok := reflect.New(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		s.Model = named.OpenAPIModelName()
	}
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if tag[0] == "-" || f.PkgPath != "" {
			continue
		}
		e := field{Name: tag[0], Type: typeOf(f.Type), Pointer: f.Type.Kind() == reflect.Pointer}
		for _, option := range tag[1:] {
			switch option {
			case "omitempty":
				e.Omit += "e"
			case "omitzero":
				e.Omit += "z"
			case "inline":
				e.Inline = true
			}
		}
		if f.Anonymous && tag[0] == "" {
			e.Inline = true
		}
		e.Protobuf = f.Tag.Get("protobuf")
		e.Strategy = f.Tag.Get("patchStrategy")
		e.MergeKey = f.Tag.Get("patchMergeKey")
		s.Fields = append(s.Fields, e)
	}
	out.Structs[name] = s
}

func main() {
	_ = apiextensions.AddToScheme(scheme.Scheme)
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		if t.Kind() == reflect.Struct {
			gv := gvk.GroupVersion().String()
			if out.Kinds[gv] == nil {
				out.Kinds[gv] = map[string]string{}
			}
			out.Kinds[gv][gvk.Kind] = qualified(t)
			visit(t)
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	_ = encoder.Encode(out)
}
