// The allocation-oracle runs the upstream allocator for dynamic resource
// allocation on cases, one JSON object per line in, one result per line out.
// cases/allocation/README.md describes both. With --bench it measures instead.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/klog/v2"
)

func main() {
	bench := flag.Int("bench", 0, "measure instead of printing allocations: number of timed runs per case")
	timeout := flag.Duration("timeout", 0, "time limit for one case, or with --bench for one run (0: none)")
	budget := flag.Duration("budget", 30*time.Second, "with --bench: start no further run of a case after this much time")
	stats := flag.Bool("stats", false, "add the number of search steps to each result")
	flag.Parse()
	if flag.NArg() != 0 {
		fmt.Fprintln(os.Stderr, "usage: allocation-oracle [--bench N [--budget D]] [--timeout D] [--stats] < cases.jsonl")
		os.Exit(2)
	}
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)

	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	failed := false
	for number := 1; ; number++ {
		line, readErr := in.ReadBytes('\n')
		if len(line) > 1 {
			result, err := handle(line, *bench, *timeout, *budget, *stats)
			if err != nil {
				fmt.Fprintf(os.Stderr, "line %d: %v\n", number, err)
				failed = true
				// One answer per line, so that whoever asks never waits in vain.
				result = map[string]string{"badCase": err.Error()}
			}
			if err := encoder.Encode(result); err != nil {
				fmt.Fprintf(os.Stderr, "line %d: %v\n", number, err)
				failed = true
			}
			out.Flush()
		}
		if readErr == io.EOF {
			break
		}
		if readErr != nil {
			fmt.Fprintln(os.Stderr, readErr)
			os.Exit(1)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func handle(line []byte, bench int, timeout, budget time.Duration, stats bool) (any, error) {
	start := time.Now()
	c, err := parseCase(line)
	if err != nil {
		return nil, err
	}
	if bench > 0 {
		return measure(c, bench, timeout, budget, time.Since(start))
	}
	return evaluate(c, timeout, stats)
}
