// Command cel-oracle evaluates Kubernetes device selectors with the upstream
// compiler and reports what happened, one JSON object per line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type deviceInput struct {
	Driver                   string                                                    `json:"driver"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
}

// featureInput holds the feature gates the compiler knows. A missing entry
// means the default of Kubernetes 1.37.
type featureInput struct {
	ConsumableCapacity *bool `json:"consumableCapacity"`
	ListTypeAttributes *bool `json:"listTypeAttributes"`
}

type testCase struct {
	Name       string       `json:"name"`
	Expression string       `json:"expression"`
	Device     deviceInput  `json:"device"`
	Env        string       `json:"env"`
	Features   featureInput `json:"features"`

	// Minor is the minor version of Kubernetes whose libraries count, 37 if
	// absent. Expressions of an older one are compiled with what this library
	// offers to new expressions that must work there.
	Minor uint `json:"minor"`
}

type outcome struct {
	Name          string  `json:"name"`
	Result        *bool   `json:"result"`
	CompileError  *string `json:"compileError"`
	RuntimeError  *string `json:"runtimeError"`
	EstimatedCost *uint64 `json:"estimatedCost"`
	ActualCost    *uint64 `json:"actualCost"`

	// AdmissionError is what the API server's validation says to an object
	// that brings this selector as a new one: too long, the compile error in
	// the environment for new expressions, or too expensive.
	AdmissionError *string `json:"admissionError"`
	OutputType     *string `json:"outputType"`

	// Unstable is set by --repeat when two runs of the same case disagreed
	// (Go randomises the order in which maps are visited): "actualCost" if
	// only the cost differed, otherwise "outcome".
	Unstable string `json:"unstable,omitempty"`

	// TimedOut is set when --timeout struck; then the rest says little.
	TimedOut bool `json:"timed_out,omitempty"`

	CompileNS *int64 `json:"compile_ns,omitempty"`
	EvalNS    *int64 `json:"eval_ns,omitempty"`
}

type prepared struct {
	compilerKey
	envType environment.Type
	device  dracel.Device

	// admission is the compiler that judges the expression as a new one.
	admission compilerKey
}

const newest = 37

func (tc *testCase) prepare() (prepared, error) {
	p := prepared{
		compilerKey: compilerKey{features: dracel.Features{EnableConsumableCapacity: true}},
		device: dracel.Device{
			Driver:                   tc.Device.Driver,
			AllowMultipleAllocations: tc.Device.AllowMultipleAllocations,
			Attributes:               tc.Device.Attributes,
			Capacity:                 tc.Device.Capacity,
		},
	}
	if v := tc.Features.ConsumableCapacity; v != nil {
		p.features.EnableConsumableCapacity = *v
	}
	if v := tc.Features.ListTypeAttributes; v != nil {
		p.features.EnableListTypeAttributes = *v
	}
	minor := tc.Minor
	if minor == 0 {
		minor = newest
	}
	p.compatible = minor - 1
	p.admission = p.compilerKey
	switch tc.Env {
	case "", "stored":
		p.envType = environment.StoredExpressions
		if minor < newest {
			// All gates count as on; that of lists came with 1.36.
			p.envType = environment.NewExpressions
			p.compatible = minor
			p.features = dracel.Features{EnableConsumableCapacity: minor >= 34, EnableListTypeAttributes: minor >= 36}
		}
	case "new":
		p.envType = environment.NewExpressions
	default:
		return p, fmt.Errorf("unknown env %q", tc.Env)
	}
	return p, nil
}

type compiler interface {
	CompileCELExpression(string, dracel.Options) dracel.CompilationResult
}

type compilerKey struct {
	features   dracel.Features
	compatible uint
}

// compilers keeps one compiler per feature set and version; upstream keeps only the last.
var compilers = map[compilerKey]compiler{}

func compilerFor(key compilerKey) compiler {
	c, ok := compilers[key]
	if !ok {
		kube := compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent)
		kube.(basecompatibility.MutableEffectiveVersion).SetMinCompatibilityVersion(version.MajorMinor(1, key.compatible))
		// Upstream makes a new one only for other features than the last.
		other := key.features
		other.EnableConsumableCapacity = !other.EnableConsumableCapacity
		dracel.GetCompiler(other)
		c = dracel.GetCompiler(key.features)
		compilers[key] = c
	}
	return c
}

// compile returns the compilation result; a panic in the compiler becomes an
// error text so that one bad case cannot end the run.
func compile(p prepared, expression string, estimate bool) (result dracel.CompilationResult, text *string) {
	defer func() {
		if r := recover(); r != nil {
			s := fmt.Sprintf("panic: %v", r)
			text = &s
		}
	}()
	result = compilerFor(p.compilerKey).CompileCELExpression(expression, dracel.Options{
		EnvType:               &p.envType,
		DisableCostEstimation: !estimate,
	})
	if result.Error != nil {
		s := result.Error.Error()
		text = &s
	}
	return result, text
}

func evaluate(ctx context.Context, c *dracel.CompilationResult, d dracel.Device) (out outcome) {
	defer func() {
		if r := recover(); r != nil {
			s := fmt.Sprintf("panic: %v", r)
			out.RuntimeError = &s
		}
	}()
	matches, details, err := c.DeviceMatches(ctx, d)
	if details != nil {
		out.ActualCost = details.ActualCost()
	}
	if err != nil {
		s := err.Error()
		out.RuntimeError = &s
		return out
	}
	out.Result = &matches
	return out
}

func run(ctx context.Context, tc *testCase, repeat int) (outcome, error) {
	p, err := tc.prepare()
	if err != nil {
		return outcome{}, err
	}
	var final outcome
	for i := range max(repeat, 1) {
		var o outcome
		compiled, text := compile(p, tc.Expression, true)
		if text != nil {
			o.CompileError = text
		} else {
			o = evaluate(ctx, &compiled, p.device)
			cost := compiled.MaxCost
			o.EstimatedCost = &cost
			t := compiled.OutputType.String()
			o.OutputType = &t
		}
		o.Name = tc.Name
		if i == 0 {
			final = o
			continue
		}
		if difference := compare(final, o); difference != "" {
			final.Unstable = difference
			if difference == "outcome" {
				break
			}
		}
	}
	final.AdmissionError = admission(p, tc.Expression)
	return final, nil
}

// admission follows the order of the API server's checks: a selector that is
// too long is not compiled at all.
func admission(p prepared, expression string) *string {
	if limit := resourceapi.CELSelectorExpressionMaxLength; len(expression) > limit {
		s := fmt.Sprintf("may not be more than %d bytes", limit)
		return &s
	}
	p.envType = environment.NewExpressions
	p.compilerKey = p.admission
	compiled, text := compile(p, expression, true)
	if text == nil && compiled.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
		s := "too complex, exceeds cost limit"
		return &s
	}
	return text
}

// compare says which part of two outcomes of one case differs.
func compare(a, b outcome) string {
	a.Unstable, b.Unstable = "", ""
	costsDiffer := (a.ActualCost == nil) != (b.ActualCost == nil) ||
		(a.ActualCost != nil && *a.ActualCost != *b.ActualCost)
	a.ActualCost, b.ActualCost = nil, nil
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	switch {
	case string(x) != string(y):
		return "outcome"
	case costsDiffer:
		return "actualCost"
	}
	return ""
}

// bench fills in the time of one compilation and of one evaluation. Each is
// the best of five rounds of n operations, after n operations of warm-up.
func bench(ctx context.Context, tc *testCase, n int, o *outcome) error {
	p, err := tc.prepare()
	if err != nil {
		return err
	}
	best := func(op func()) *int64 {
		for range n {
			op()
		}
		least := int64(math.MaxInt64)
		for range 5 {
			start := time.Now()
			for range n {
				op()
			}
			least = min(least, time.Since(start).Nanoseconds()/int64(n))
		}
		return &least
	}
	o.CompileNS = best(func() { compile(p, tc.Expression, false) })
	if o.CompileError == nil {
		compiled, _ := compile(p, tc.Expression, false)
		o.EvalNS = best(func() { evaluate(ctx, &compiled, p.device) })
	}
	return nil
}

func loop(in io.Reader, out io.Writer, repeat, benchN int, timeout time.Duration) error {
	dec := json.NewDecoder(bufio.NewReaderSize(in, 1<<20))
	w := bufio.NewWriterSize(out, 1<<20)
	defer w.Flush()
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for {
		var tc testCase
		if err := dec.Decode(&tc); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("after %q: %w", tc.Name, err)
		}
		ctx, cancel := context.Background(), func() {}
		if timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, timeout)
		}
		o, err := run(ctx, &tc, repeat)
		o.TimedOut = ctx.Err() != nil
		cancel()
		if err != nil {
			return fmt.Errorf("case %q: %w", tc.Name, err)
		}
		if benchN > 0 {
			if err := bench(context.Background(), &tc, benchN, &o); err != nil {
				return err
			}
		}
		if err := enc.Encode(&o); err != nil {
			return err
		}
		// Whoever asks one case at a time waits for this answer.
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

type signature struct {
	Env      string   `json:"env"`
	Function string   `json:"function"`
	Overload string   `json:"overload"`
	Member   bool     `json:"member"`
	Args     []string `json:"args"`
	Result   string   `json:"result"`
}

// listFunctions writes every function overload and every macro that both
// environments offer with the given features.
func listFunctions(out io.Writer, f dracel.Features) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, envType := range []environment.Type{environment.NewExpressions, environment.StoredExpressions} {
		label := "new"
		if envType == environment.StoredExpressions {
			label = "stored"
		}
		compiled, text := compile(prepared{compilerKey: compilerKey{features: f, compatible: newest - 1}, envType: envType}, "true", false)
		if text != nil {
			return errors.New(*text)
		}
		functions := compiled.Environment.Functions()
		for _, name := range slices.Sorted(maps.Keys(functions)) {
			for _, o := range functions[name].OverloadDecls() {
				s := signature{Env: label, Function: name, Overload: o.ID(), Member: o.IsMemberFunction(), Args: []string{}, Result: o.ResultType().String()}
				for _, a := range o.ArgTypes() {
					s.Args = append(s.Args, a.String())
				}
				if err := enc.Encode(s); err != nil {
					return err
				}
			}
		}
		for _, m := range compiled.Environment.Macros() {
			s := signature{Env: label, Function: m.Function(), Overload: "macro", Member: m.IsReceiverStyle(), Args: []string{fmt.Sprint(m.ArgCount())}}
			if err := enc.Encode(s); err != nil {
				return err
			}
		}
	}
	return nil
}

func main() {
	functions := flag.Bool("functions", false, "list all function overloads and macros instead of reading cases")
	lists := flag.Bool("list-attributes", false, "with --functions: turn the list type attributes gate on")
	repeat := flag.Int("repeat", 1, "run each case this often and flag cases whose outcome varies")
	benchN := flag.Int("bench", 0, "also time each case with rounds of this many operations")
	timeout := flag.Duration("timeout", 0, "time limit for one case (0: none)")
	flag.Parse()
	debug.SetMaxStack(1 << 30)
	if *functions {
		if err := listFunctions(os.Stdout, dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: *lists}); err != nil {
			fmt.Fprintln(os.Stderr, "cel-oracle:", err)
			os.Exit(1)
		}
		return
	}
	if err := loop(os.Stdin, os.Stdout, *repeat, *benchN, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "cel-oracle:", err)
		os.Exit(1)
	}
}
