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
	if found.minor, err = asked("minor", one.GetMinorNumber); err != nil {
		return
	}
	if found.uuid, err = asked("UUID", one.GetUUID); err != nil {
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
		mode, err := asked("virtualization mode", one.GetVirtualizationMode)
		if err != nil {
			return found, err
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
	found := attributes{}
	for _, each := range []struct {
		name resource.QualifiedName
		ask  func() (string, error)
		as   func(string) resource.DeviceAttribute
	}{
		{"productName", func() (string, error) { return asked("name", one.GetName) }, text},
		{"brand", one.GetBrandAsString, text},
		{"architecture", one.GetArchitectureAsString, text},
		{"cudaComputeCapability", one.GetCudaComputeCapabilityAsString, version},
		{"driverVersion", func() (string, error) { return asked("driver version", library.SystemGetDriverVersion) }, version},
	} {
		value, err := each.ask()
		if err != nil {
			return nil, err
		}
		found[each.name] = each.as(value)
	}
	cuda, err := asked("CUDA version", library.SystemGetCudaDriverVersion)
	if err != nil {
		return nil, err
	}
	found["cudaDriverVersion"] = version(fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10))
	mode, err := one.GetAddressingModeAsString()
	if err != nil {
		return nil, err
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
	count, err := asked("MIG devices", one.GetMaxMigDeviceCount)
	if err != nil {
		return nil, err
	}
	var found []instance
	for index := range count {
		mig, ret := one.GetMigDeviceHandleByIndex(index)
		if ret != nvml.SUCCESS {
			continue
		}
		uuid, err := asked(fmt.Sprintf("UUID of MIG device %d", index), mig.GetUUID)
		if err != nil {
			return nil, err
		}
		id, err := asked(fmt.Sprintf("GPU instance of MIG device %d", index), mig.GetGpuInstanceId)
		if err != nil {
			return nil, err
		}
		parent, ret := one.GetGpuInstanceById(id)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("GPU instance %d: %w", id, ret)
		}
		info, err := asked(fmt.Sprintf("GPU instance %d", id), parent.GetInfo)
		if err != nil {
			return nil, err
		}
		for _, each := range known {
			if each.info.Id == info.ProfileId {
				found = append(found, instance{uuid, each, info.Placement})
			}
		}
	}
	return found, nil
}

// asked puts a question to NVML; a code that is not success is an error that says what was asked.
func asked[T any](what string, question func() (T, nvml.Return)) (T, error) {
	answer, ret := question()
	if ret != nvml.SUCCESS {
		return answer, fmt.Errorf("%s: %w", what, ret)
	}
	return answer, nil
}

func text(value string) resource.DeviceAttribute {
	return resource.DeviceAttribute{StringValue: &value}
}

func version(value string) resource.DeviceAttribute {
	canonical := semver.MustParse(value).String()
	return resource.DeviceAttribute{VersionValue: &canonical}
}
