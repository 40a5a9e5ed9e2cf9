// Client-go's shared informers against the cluster of KUBECONFIG: what their caches hold, as JSON lines.
//
// One line per event ({"event": "ADDED", "kind": ..., "name": ..., "resourceVersion": ...}), one `{"synced": true}` when
// all caches are filled and what they hold was told, and at the end of standard input the caches' content, so that a test
// can compare them with what it wrote. DRA's kinds are read by their typed informers of resource.k8s.io/v1.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

var writing sync.Mutex

func say(value any) {
	writing.Lock()
	defer writing.Unlock()
	text, err := json.Marshal(value)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(text))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func tell(event, kind string, object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	meta, ok := object.(metav1.Object)
	if !ok {
		return
	}
	say(map[string]string{
		"event": event, "kind": kind, "name": meta.GetName(), "namespace": meta.GetNamespace(),
		"resourceVersion": meta.GetResourceVersion(),
	})
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fail(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	watched := map[string]cache.SharedIndexInformer{
		"Pod":           factory.Core().V1().Pods().Informer(),
		"Node":          factory.Core().V1().Nodes().Informer(),
		"ConfigMap":     factory.Core().V1().ConfigMaps().Informer(),
		"Deployment":    factory.Apps().V1().Deployments().Informer(),
		"ResourceClaim": factory.Resource().V1().ResourceClaims().Informer(),
		"ResourceSlice": factory.Resource().V1().ResourceSlices().Informer(),
		"DeviceClass":   factory.Resource().V1().DeviceClasses().Informer(),
	}
	told := []cache.InformerSynced{}
	for kind, informer := range watched {
		kind := kind
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { tell("ADDED", kind, object) },
			UpdateFunc: func(_, object any) { tell("MODIFIED", kind, object) },
			DeleteFunc: func(object any) { tell("DELETED", kind, object) },
		})
		if err != nil {
			fail(err)
		}
		told = append(told, handler.HasSynced)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	for kind, synced := range factory.WaitForCacheSync(stop) {
		if !synced {
			fail(fmt.Errorf("the cache of %v was not filled", kind))
		}
	}
	// A cache is filled before its handlers have heard of what it holds.
	if !cache.WaitForCacheSync(stop, told...) {
		fail(fmt.Errorf("the handlers were not told what the caches hold"))
	}
	say(map[string]bool{"synced": true})
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
	}
	contents := map[string][]string{}
	for kind, informer := range watched {
		contents[kind] = []string{}
		for _, object := range informer.GetStore().List() {
			meta := object.(metav1.Object)
			contents[kind] = append(contents[kind], meta.GetName()+"@"+meta.GetResourceVersion())
		}
		sort.Strings(contents[kind])
	}
	say(map[string]any{"contents": contents})
	close(stop)
}
