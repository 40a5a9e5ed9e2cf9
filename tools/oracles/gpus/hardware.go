package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/Masterminds/semver/v3"
	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	resource "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

type attributes = map[resource.QualifiedName]resource.DeviceAttribute

// gpu is what the libraries tell of one.
type gpu struct {
	uuid, busID string
	minor       int
	memory      *uint64 // nil where NVML does not support the question
	capable     bool
	enabled     bool
	toggles     bool
	guest       bool
	common      attributes
	profiles    []profile
	instances   []instance
}

// profile is a GPU instance profile whose one compute instance is as wide as itself.
type profile struct {
	name   string
	info   nvml.GpuInstanceProfileInfo
	places []nvml.GpuInstancePlacement
}

// instance is a MIG device that exists.
type instance struct {
	uuid  string
	of    profile
	place nvml.GpuInstancePlacement
}

// gpus asks NVML for all GPUs of the machine.
func (c *Case) gpus() ([]gpu, error) {
	library := nvml.New(nvml.WithLibraryPath(os.Args[1]))
	if ret := library.InitWithFlags(nvml.INIT_FLAG_NO_GPUS); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("NVML does not start: %w", ret)
	}
	defer library.Shutdown()
	devices := device.New(library)
	var found []gpu
	err := devices.VisitDevices(func(_ int, one device.Device) error {
		told, err := c.told(library, one)
		if err == nil {
			found = append(found, told)
		}
		return err
	})
	return found, err
}

func (c *Case) told(library nvml.Interface, one device.Device) (found gpu, err error) {
	var ret nvml.Return
	answers := func(what string) bool {
		if ret != nvml.SUCCESS {
			err = fmt.Errorf("%s: %w", what, ret)
		}
		return err == nil
	}
	if found.minor, ret = one.GetMinorNumber(); !answers("minor") {
		return
	}
	if found.uuid, ret = one.GetUUID(); !answers("UUID") {
		return
	}
	memory, ret := one.GetMemoryInfo()
	if ret == nvml.SUCCESS {
		found.memory = &memory.Total
	} else if ret != nvml.ERROR_NOT_SUPPORTED {
		return found, fmt.Errorf("memory: %w", ret)
	}
	if found.capable, err = one.IsMigCapable(); err != nil {
		return
	}
	if found.enabled, err = one.IsMigEnabled(); err != nil {
		return
	}
	architecture, ret := one.GetArchitecture()
	found.toggles = ret == nvml.SUCCESS && architecture >= nvml.DEVICE_ARCH_HOPPER
	if found.capable && c.DynamicMIG {
		mode, ret := one.GetVirtualizationMode()
		if ret != nvml.SUCCESS {
			return found, fmt.Errorf("virtualization mode: %w", ret)
		}
		found.guest = mode == nvml.GPU_VIRTUALIZATION_MODE_VGPU
	}
	if found.busID, err = one.GetPCIBusID(); err != nil {
		return
	}
	if found.common, err = c.commonAttributes(library, one, found.busID); err != nil {
		return
	}
	if found.capable {
		if found.profiles, err = profiles(one); err != nil {
			return
		}
	}
	if found.enabled {
		found.instances, err = instances(one, found.profiles)
	}
	return
}

func (c *Case) commonAttributes(library nvml.Interface, one device.Device, busID string) (attributes, error) {
	name, ret := one.GetName()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("name: %w", ret)
	}
	brand, err := one.GetBrandAsString()
	if err != nil {
		return nil, err
	}
	architecture, err := one.GetArchitectureAsString()
	if err != nil {
		return nil, err
	}
	capability, err := one.GetCudaComputeCapabilityAsString()
	if err != nil {
		return nil, err
	}
	driver, ret := library.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("driver version: %w", ret)
	}
	cuda, ret := library.SystemGetCudaDriverVersion()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("CUDA version: %w", ret)
	}
	mode, err := one.GetAddressingModeAsString()
	if err != nil {
		return nil, err
	}
	found := attributes{
		"productName":           text(name),
		"brand":                 text(brand),
		"architecture":          text(architecture),
		"cudaComputeCapability": version(capability),
		"driverVersion":         version(driver),
		"cudaDriverVersion":     version(fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)),
	}
	if mode != "" {
		found["addressingMode"] = text(mode)
	}
	return found, c.standardAttributes(found, busID)
}

// standardAttributes adds what Kubernetes' own library makes of the PCI bus.
func (c *Case) standardAttributes(to attributes, busID string) error {
	address, err := deviceattribute.GetPCIBusIDAttribute(busID)
	if err != nil {
		return err
	}
	to[address.Name] = address.Value
	sysfs := deviceattribute.WithFSFromRoot(filepath.Join(c.root, "sys"))
	if root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(busID, sysfs); err == nil {
		to[root.Name] = root.Value
	}
	form := deviceattribute.ScalarAttribute
	if c.Lists {
		form = deviceattribute.ListAttribute
	}
	if numa, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(busID, form, sysfs); err == nil {
		to[numa.Name] = numa.Value
	}
	return nil
}

func profiles(one device.Device) ([]profile, error) {
	var found []profile
	err := one.VisitMigProfiles(func(each device.MigProfile) error {
		told := each.GetInfo()
		if told.C != told.G || told.CIProfileID == nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1 {
			return nil
		}
		info, ret := one.GetGpuInstanceProfileInfo(told.GIProfileID)
		if ret != nvml.SUCCESS {
			return nil
		}
		for _, known := range found { // once more with another compute instance as wide
			if known.info.Id == info.Id {
				return nil
			}
		}
		places, ret := one.GetGpuInstancePossiblePlacements(&info)
		if ret == nvml.SUCCESS {
			found = append(found, profile{each.String(), info, places})
		}
		return nil
	})
	return found, err
}

func instances(one device.Device, known []profile) ([]instance, error) {
	count, ret := one.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("MIG devices: %w", ret)
	}
	var found []instance
	for index := range count {
		mig, ret := one.GetMigDeviceHandleByIndex(index)
		if ret != nvml.SUCCESS {
			continue
		}
		uuid, ret := mig.GetUUID()
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("UUID of MIG device %d: %w", index, ret)
		}
		id, ret := mig.GetGpuInstanceId()
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("GPU instance of MIG device %d: %w", index, ret)
		}
		parent, ret := one.GetGpuInstanceById(id)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("GPU instance %d: %w", id, ret)
		}
		info, ret := parent.GetInfo()
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("GPU instance %d: %w", id, ret)
		}
		for _, each := range known {
			if each.info.Id == info.ProfileId {
				found = append(found, instance{uuid, each, info.Placement})
			}
		}
	}
	return found, nil
}

func text(value string) resource.DeviceAttribute {
	return resource.DeviceAttribute{StringValue: &value}
}

func version(value string) resource.DeviceAttribute {
	canonical := semver.MustParse(value).String()
	return resource.DeviceAttribute{VersionValue: &canonical}
}
