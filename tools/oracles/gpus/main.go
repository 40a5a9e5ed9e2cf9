// Command gpus says how a machine's GPUs look to NVIDIA's and Kubernetes' own Go libraries: go-nvml and go-nvlib (what
// NVML and the PCI bus tell, the names of products, brands and MIG profiles), the standard attributes of
// k8s.io/dynamic-resource-allocation, quantities and versions in their canonical forms.
//
// It reads cases as JSON Lines and answers each with devices and counter sets as NVIDIA's DRA driver 0.5 publishes them.
// Which attribute goes where is written down here a second time, apart from the Python side; the values are the
// libraries'. Its arguments are a libnvidia-ml.so.1, and the variable in which that looks for the machine to serve.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
)

// Case is a machine, as what its NVML serves and as the files and links below its root, and the gates that are on.
type Case struct {
	Name        string            `json:"name"`
	Machine     string            `json:"machine"`
	Files       map[string]string `json:"files"`
	Links       map[string]string `json:"links"`
	DynamicMIG  bool              `json:"dynamicMIG"`
	Lists       bool              `json:"lists"`
	Shares      string            `json:"shares"`
	Passthrough bool              `json:"passthrough"`

	root string
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gpus LIBRARY VARIABLE")
		os.Exit(2)
	}
	log.SetOutput(io.Discard) // nvpci warns of what a machine has not
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return
		}
		var one Case
		var answer any
		if err := json.Unmarshal(line, &one); err != nil {
			answer = failure(err)
		} else if pool, err := one.answer(); err != nil {
			answer = failure(err)
		} else {
			answer = pool
		}
		text, err := json.Marshal(answer)
		if err != nil {
			text, _ = json.Marshal(failure(err))
		}
		out.Write(append(text, '\n'))
		out.Flush()
	}
}

func failure(err error) any {
	return map[string]string{"error": err.Error()}
}

// answer lays the machine out below a folder of its own and looks at it there.
func (c *Case) answer() (*Pool, error) {
	root, err := os.MkdirTemp("", "gpus-oracle-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	c.root = root
	served := filepath.Join(root, "nvml")
	os.Setenv(os.Args[2], served)
	if err := os.WriteFile(served, []byte(c.Machine), 0o644); err != nil {
		return nil, err
	}
	for path, text := range c.Files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	for path, target := range c.Links {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			return nil, err
		}
		if err := os.Symlink(target, filepath.Join(root, path)); err != nil {
			return nil, err
		}
	}
	return c.pool()
}
