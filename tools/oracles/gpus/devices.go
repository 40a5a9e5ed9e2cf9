package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvlib/pkg/nvpci"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/uuid"
	resource "k8s.io/api/resource/v1"
	quantities "k8s.io/apimachinery/pkg/api/resource"
)

type capacities = map[resource.QualifiedName]resource.DeviceCapacity

// Pool is what is published of a machine, devices by their names.
type Pool struct {
	Devices        []resource.Device     `json:"devices"`
	SharedCounters []resource.CounterSet `json:"sharedCounters"`
}

func (c *Case) pool() (*Pool, error) {
	found, err := c.gpus()
	if err != nil {
		return nil, err
	}
	pool := &Pool{}
	for _, one := range found {
		if c.DynamicMIG && one.capable && !one.guest && (one.toggles || one.enabled) {
			c.addPartitionable(pool, one)
		} else if one.enabled {
			for _, each := range one.instances {
				pool.Devices = append(pool.Devices, c.shared(existing(one, each)))
			}
		} else {
			pool.Devices = append(pool.Devices, c.shared(whole(one, plainMemory(one))))
		}
	}
	if c.Passthrough {
		if err := c.addPassedThrough(pool, found); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(pool.Devices, func(a, b resource.Device) int { return strings.Compare(a.Name, b.Name) })
	return pool, nil
}

func whole(one gpu, figures capacities) resource.Device {
	told := maps.Clone(one.common)
	told["type"], told["uuid"] = text("gpu"), text(one.uuid)
	return resource.Device{Name: fmt.Sprintf("gpu-%d", one.minor), Attributes: told, Capacity: figures}
}

func plainMemory(one gpu) capacities {
	if one.memory == nil {
		return nil
	}
	return capacities{"memory": amount(int64(*one.memory))}
}

func partition(one gpu, of profile, start uint32) resource.Device {
	told := maps.Clone(one.common)
	told["type"], told["parentUUID"], told["profile"] = text("mig"), text(one.uuid), text(of.name)
	return resource.Device{
		Name:       fmt.Sprintf("gpu-%d-mig-%s-%d-%d", one.minor, label(of.name), of.info.Id, start),
		Attributes: told,
		Capacity:   figures(of.info),
	}
}

func existing(one gpu, each instance) resource.Device {
	found := partition(one, each.of, each.place.Start)
	found.Attributes["uuid"] = text(each.uuid)
	for place := each.place.Start; place < each.place.Start+each.place.Size; place++ {
		found.Capacity[resource.QualifiedName(fmt.Sprintf("memorySlice%d", place))] = amount(1)
	}
	return found
}

// addPartitionable adds a counter set, the GPU where its MIG mode can be left, and each profile at each place.
func (c *Case) addPartitionable(pool *Pool, one gpu) {
	most, size := capacities{}, uint32(0)
	for _, of := range one.profiles {
		for name, figure := range figures(of.info) {
			if known, ok := most[name]; !ok || figure.Value.Cmp(known.Value) > 0 {
				most[name] = figure
			}
		}
		for _, place := range of.places {
			size = max(size, place.Size)
		}
	}
	set := fmt.Sprintf("gpu-%d-counter-set", one.minor)
	all := counters(most, 0, size)
	pool.SharedCounters = append(pool.SharedCounters, resource.CounterSet{Name: set, Counters: all})
	if one.toggles {
		found := whole(one, most)
		found.ConsumesCounters = []resource.DeviceCounterConsumption{{CounterSet: set, Counters: all}}
		pool.Devices = append(pool.Devices, c.shared(found))
	}
	for _, of := range one.profiles {
		for _, place := range of.places {
			found := partition(one, of, place.Start)
			taken := counters(found.Capacity, place.Start, place.Size)
			found.ConsumesCounters = []resource.DeviceCounterConsumption{{CounterSet: set, Counters: taken}}
			pool.Devices = append(pool.Devices, c.shared(found))
		}
	}
}

func figures(info nvml.GpuInstanceProfileInfo) capacities {
	return capacities{
		"memory":          amount(int64(info.MemorySizeMB << 20)),
		"multiprocessors": amount(int64(info.MultiprocessorCount)),
		"copyEngines":     amount(int64(info.CopyEngineCount)),
		"decoders":        amount(int64(info.DecoderCount)),
		"encoders":        amount(int64(info.EncoderCount)),
		"jpegEngines":     amount(int64(info.JpegCount)),
		"ofaEngines":      amount(int64(info.OfaCount)),
	}
}

func counters(of capacities, start, size uint32) map[string]resource.Counter {
	found := map[string]resource.Counter{}
	for name, figure := range of {
		dashed := strings.ToLower(strings.ReplaceAll(string(name), "Engines", "-engines"))
		found[dashed] = resource.Counter{Value: figure.Value}
	}
	for place := start; place < start+size; place++ {
		found[fmt.Sprintf("memory-slice-%d", place)] = resource.Counter{Value: amount(1).Value}
	}
	return found
}

// shared is the device under the gate ConsumableShares.
func (c *Case) shared(found resource.Device) resource.Device {
	if c.Shares == "" {
		return found
	}
	yes := true
	found.AllowMultipleAllocations = &yes
	memory, ok := found.Capacity["memory"]
	if !ok {
		return found
	}
	found.Capacity = maps.Clone(found.Capacity)
	const step = 1 << 20
	total := *quantities.NewQuantity(memory.Value.Value()/step*step, quantities.BinarySI)
	least, given := quantities.MustParse("0"), quantities.MustParse("0")
	if c.Shares == "memory" {
		least, given = quantities.MustParse("1Mi"), total
	}
	found.Capacity["memory"] = ranged(total, given, least, quantities.MustParse("1Mi"))
	if number, err := strconv.ParseInt(c.Shares, 10, 64); err == nil {
		one := *quantities.NewQuantity(1, quantities.DecimalSI)
		found.Capacity["shares"] = ranged(*quantities.NewQuantity(number, quantities.DecimalSI), one, one, one)
	}
	return found
}

func ranged(total, given, least, step quantities.Quantity) resource.DeviceCapacity {
	valid := &resource.CapacityRequestPolicyRange{Min: &least, Max: &total, Step: &step}
	return resource.DeviceCapacity{
		Value:         total,
		RequestPolicy: &resource.CapacityRequestPolicy{Default: &given, ValidRange: valid},
	}
}

// addPassedThrough adds the GPUs on the bus that have no MIG device and are not in use as one.
func (c *Case) addPassedThrough(pool *Pool, known []gpu) error {
	bus := nvpci.New(nvpci.WithPCIDevicesRoot(filepath.Join(c.root, "sys/bus/pci/devices")))
	found, err := bus.GetGPUs()
	if err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(c.root, "dev/iommu"))
	iommufd := err == nil
	for index, one := range found {
		if slices.ContainsFunc(known, func(each gpu) bool { return each.busID == one.Address && len(each.instances) > 0 }) {
			continue
		}
		told := attributes{
			"type":           text("vfio"),
			"uuid":           text(uuid.NewSHA1(uuid.NameSpaceDNS, []byte(one.Address)).String()),
			"deviceID":       text(fmt.Sprintf("0x%04x", one.Device)),
			"vendorID":       text(fmt.Sprintf("0x%04x", one.Vendor)),
			"productName":    text(one.DeviceName),
			"iommuFDEnabled": {BoolValue: &iommufd},
		}
		if err := c.standardAttributes(told, one.Address); err != nil {
			return err
		}
		_, memory := one.Resources.GetTotalAddressableMemory(true)
		pool.Devices = append(pool.Devices, resource.Device{
			Name:       fmt.Sprintf("gpu-vfio-%d", index),
			Attributes: told,
			Capacity:   capacities{"addressableMemory": amount(int64(memory))},
		})
	}
	return nil
}

func amount(value int64) resource.DeviceCapacity {
	return resource.DeviceCapacity{Value: *quantities.NewQuantity(value, quantities.BinarySI)}
}

// label is a profile's name inside a device's: lower case, dots left out, dashes for what DNS does not know.
func label(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(strings.ReplaceAll(name, ".", "")))
}
