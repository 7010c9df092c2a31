package hostagent

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/keeper"
)

// The amounts that every host has.
const (
	slotsAmount  = "slots"
	cpuAmount    = "cpu"    // in thousandths
	memoryAmount = "memory" // in bytes
)

// capacityOf returns what the host has.
func capacityOf(cfg *Config) perdure.Amounts {
	has := maps.Clone(cfg.Capacity)
	if has == nil {
		has = perdure.Amounts{}
	}
	has[slotsAmount] = int64(cfg.Slots)
	if _, given := has[cpuAmount]; !given && cfg.Slurm == nil {
		has[cpuAmount] = int64(runtime.GOMAXPROCS(0)) * 1000 // those of the cgroup, if it has a bound
	}
	if _, given := has[memoryAmount]; !given && cfg.Slurm == nil {
		if n := machineMemory(); n > 0 {
			has[memoryAmount] = n
		}
	}
	return has
}

// machineMemory returns the memory of the machine, or of this process's cgroup if that has less; 0: not known.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	memory := int64(info.Totalram) * int64(info.Unit)
	if dir, err := keeper.OwnCgroup(); err == nil {
		text, _ := os.ReadFile(filepath.Join(dir, "memory.max"))
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			memory = min(memory, n)
		}
	}
	return memory
}
