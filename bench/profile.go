package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// startProfile profiles this process until the function is called that it gives back: path.cpu and
// path.allocs, for go tool pprof. Without a path it does nothing.
func startProfile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	cpu, err := os.Create(path + ".cpu")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(err, cpu.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		if err := cpu.Close(); err != nil {
			return err
		}
		allocs, err := os.Create(path + ".allocs")
		if err != nil {
			return err
		}
		runtime.GC() // what is freed is counted, too
		return errors.Join(pprof.Lookup("allocs").WriteTo(allocs, 0), allocs.Close())
	}, nil
}
