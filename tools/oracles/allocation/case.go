package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	sigsjson "sigs.k8s.io/json"
)

// testCase is one input line. Either "node" or "nodes" is given; with "nodes"
// the allocator is tried on one node after the other until one of them fits.
type testCase struct {
	Name            string                      `json:"name"`
	Features        *featureOverrides           `json:"features,omitempty"`
	Classes         []*resourcev1.DeviceClass   `json:"classes"`
	Slices          []*resourcev1.ResourceSlice `json:"slices"`
	AllocatedClaims []*resourcev1.ResourceClaim `json:"allocatedClaims,omitempty"`
	Claims          []*resourcev1.ResourceClaim `json:"claims"`
	Node            *corev1.Node                `json:"node,omitempty"`
	Nodes           []*corev1.Node              `json:"nodes,omitempty"`

	// Fields of a case file which are not input.
	Theme    string `json:"theme,omitempty"`
	Why      string `json:"why,omitempty"`
	Expect   any    `json:"expect,omitempty"`
	Upstream any    `json:"upstream,omitempty"`
}

// featureOverrides changes single features; nil keeps the default.
type featureOverrides struct {
	AdminAccess             *bool `json:"adminAccess,omitempty"`
	PrioritizedList         *bool `json:"prioritizedList,omitempty"`
	PartitionableDevices    *bool `json:"partitionableDevices,omitempty"`
	DeviceTaints            *bool `json:"deviceTaints,omitempty"`
	DeviceBindingAndStatus  *bool `json:"deviceBindingAndStatus,omitempty"`
	ConsumableCapacity      *bool `json:"consumableCapacity,omitempty"`
	FractionalCapacityRange *bool `json:"fractionalCapacityRange,omitempty"`
	ListTypeAttributes      *bool `json:"listTypeAttributes,omitempty"`
	OptionalNodeOperations  *bool `json:"optionalNodeOperations,omitempty"`
	DerivedAttributes       *bool `json:"derivedAttributes,omitempty"`
	CompatibilityGroups     *bool `json:"compatibilityGroups,omitempty"`
}

// features returns what a Kubernetes 1.37 scheduler uses by default, with the
// overrides of the case applied.
func (c *testCase) features() structured.Features {
	f := structured.Features{
		AdminAccess:             true,
		PrioritizedList:         true,
		PartitionableDevices:    true,
		DeviceTaints:            true,
		DeviceBindingAndStatus:  true,
		ConsumableCapacity:      true,
		FractionalCapacityRange: true,
	}
	if o := c.Features; o != nil {
		for _, e := range []struct {
			from *bool
			to   *bool
		}{
			{o.AdminAccess, &f.AdminAccess},
			{o.PrioritizedList, &f.PrioritizedList},
			{o.PartitionableDevices, &f.PartitionableDevices},
			{o.DeviceTaints, &f.DeviceTaints},
			{o.DeviceBindingAndStatus, &f.DeviceBindingAndStatus},
			{o.ConsumableCapacity, &f.ConsumableCapacity},
			{o.FractionalCapacityRange, &f.FractionalCapacityRange},
			{o.ListTypeAttributes, &f.ListTypeAttributes},
			{o.OptionalNodeOperations, &f.OptionalNodeOperations},
			{o.DerivedAttributes, &f.DerivedAttributes},
			{o.CompatibilityGroups, &f.CompatibilityGroups},
		} {
			if e.from != nil {
				*e.to = *e.from
			}
		}
	}
	return f
}

// celFeatures derives the CEL environment from the allocator features.
func celFeatures(f structured.Features) cel.Features {
	return cel.Features{
		EnableConsumableCapacity: f.ConsumableCapacity,
		EnableListTypeAttributes: f.ListTypeAttributes,
	}
}

// parseCase decodes one line; unknown or repeated fields are errors.
func parseCase(line []byte) (*testCase, error) {
	c := &testCase{}
	strict, err := sigsjson.UnmarshalStrict(line, c)
	if err != nil {
		return nil, err
	}
	if len(strict) > 0 {
		return nil, fmt.Errorf("case %q: %v", c.Name, strict)
	}
	if (c.Node == nil) == (len(c.Nodes) == 0) {
		return nil, fmt.Errorf("case %q: exactly one of node and nodes is needed", c.Name)
	}
	return c, nil
}

// classLister serves the classes of the case from an indexer, as an informer would.
func (c *testCase) classLister() (resourcelisters.DeviceClassLister, error) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, class := range c.Classes {
		if err := indexer.Add(class); err != nil {
			return nil, err
		}
	}
	return resourcelisters.NewDeviceClassLister(indexer), nil
}

// lister adapts the generated lister to what the allocator wants.
type lister struct {
	resourcelisters.DeviceClassLister
	all []*resourcev1.DeviceClass
}

func (l lister) List() ([]*resourcev1.DeviceClass, error) { return l.all, nil }

// allocatedState summarises the allocated claims. Devices in use for admin
// access do not count. A result with a share ID occupies only a part of its
// device, all others occupy the whole device. Without consumable capacity
// every device is occupied as a whole.
func (c *testCase) allocatedState(f structured.Features) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range c.AllocatedClaims {
		if claim.Status.Allocation == nil {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			if r.AdminAccess != nil && *r.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if !f.ConsumableCapacity || r.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			if r.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
			}
		}
	}
	return state
}
