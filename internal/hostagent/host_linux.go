package hostagent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/exec"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/slurm"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// Config configures a host. Exchange, Name and State are required.
type Config struct {
	Exchange   protocol.Exchange
	Name       string             // of the host
	State      string             // the state directory, which is created if it is missing
	Hosts      Registrar          // registers the host
	Registered func()             // called when it is registered first; nil: nothing is called
	Logs       protocol.LogWriter // takes what commands write; nil: it stays in the state directory
	Artifacts  operate.Artifacts  // has the files that commands read and write; nil: none
	Slots      int                // the capacity "slots", 1 to MaxSlots; 0: DefaultSlots
	Capacity   perdure.Amounts    // further capacities; cpu and memory that are missing are those of the machine
	Labels     map[string]string
	Grid       string             // "": none
	Version    string             // of this program
	Commands   []string           // the only programs that may run; nil: any
	User       *exec.User         // the user of commands; nil: that of this process
	Users      []exec.UserOfLabel // the users of commands of jobs with certain labels; see exec.Config
	Slurm      *slurm.Cluster     // commands run there, and State is shared with its machines; nil: they run on this machine
	NoCgroups  bool               // use no cgroups even where they could be created
	StopWithin time.Duration      // between TERM and KILL; 0: exec.DefaultStopWithin
	Heartbeat  time.Duration      // promised interval of heartbeats; runs expire this long after the last one; 0: DefaultHeartbeat
	Keep       time.Duration      // how long the directory of a reported run is kept; 0: not at all
	MinFree    uint64             // with fewer free bytes in the file system of State nothing is claimed, until there are twice as many; 0: DefaultMinFree
	Log        *slog.Logger       // nil: nothing is logged
}

// Registrar registers hosts; see operate.Hosts.
type Registrar interface {
	RegisterHost(context.Context, operate.HostRequest) (*operate.HostRegistered, error)
}

// Host is a host agent whose state directory is locked.
type Host struct {
	cfg   Config
	log   *slog.Logger
	lock  *os.File
	agent *exec.Agent
	host  *agenthost.Host
	loop  *Loop

	groups string // the directory of the cgroups of runs; "": none
	id     *identity
	logs   *uploader // nil: none

	spaceUnknown bool // the free space could not be read. Only isFull uses it

	// Holder is the holder of the runs of this host.
	Holder string
}

// identity is host.json.
type identity struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
}

// Open locks the state directory and prepares the host. Close releases it.
func Open(cfg Config) (*Host, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("host", cfg.Name)
	if cfg.Slots <= 0 {
		cfg.Slots = DefaultSlots
	}
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = DefaultHeartbeat
	}
	if cfg.MinFree == 0 {
		cfg.MinFree = DefaultMinFree
	}
	if err := plain.CheckHostWord(cfg.Name); err != nil {
		return nil, perdure.Refuse(perdure.CodeInvalid, "the name %q of this host %s", cfg.Name, err.Error())
	}
	state, err := filepath.Abs(cfg.State)
	if err != nil {
		return nil, err
	}
	cfg.State = state
	// Another user who runs the commands must reach the directories of runs, which only that user can read.
	mode := fs.FileMode(0o700)
	if cfg.User != nil || len(cfg.Users) > 0 {
		mode = 0o711
	}
	runs := filepath.Join(state, "runs")
	for _, dir := range []string{state, runs} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return nil, unusable(state, err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			return nil, err
		}
	}
	h := &Host{cfg: cfg, log: cfg.Log}
	if err := h.acquire(); err != nil {
		return nil, unusable(state, err)
	}
	id, err := identify(state, cfg.Name)
	if err == nil {
		h.id, h.Holder = id, "host/"+id.Name+"/"+id.Incarnation
		h.groups = h.cgroups(id)
		h.agent, err = exec.New(exec.Config{Slots: MaxSlots, Dir: runs, Host: cfg.Name, StopWithin: cfg.StopWithin, Commands: cfg.Commands, Artifacts: cfg.Artifacts,
			User: cfg.User, Users: cfg.Users, Slurm: cfg.Slurm, Cgroups: h.groups, Left: func(run *perdure.Run) time.Duration { return h.host.Left(run) }, Ending: agenthost.EndingOf, Full: func() { h.loop.NoteFull() }, Begun: h.begun, Over: h.over, Log: h.log})
	}
	if err != nil {
		h.Close()
		return nil, unusable(state, err)
	}
	h.cfg.Capacity = capacityOf(&cfg)
	if cfg.Logs != nil {
		h.logs = newUploader(cfg.Logs, h.Holder, h.log)
	}
	h.host = agenthost.New(agenthost.Config{Exchange: cfg.Exchange, Holder: h.Holder, HostName: cfg.Name, Capacity: h.cfg.Capacity, ClaimWait: claimWait, Agents: []*perdure.Agent{h.agent.Agent}, Heartbeat: cfg.Heartbeat,
		Log: h.log, ExactSlots: true, Extended: h.agent.Extend, Ended: h.agent.Ended})
	h.loop = NewLoop(LoopConfig{Env: env.Real{}, Host: h.host, Agent: exec.Name, Runs: h.agent, Name: cfg.Name, State: state, Heartbeat: cfg.Heartbeat, Keep: cfg.Keep,
		Register: h.register, Registered: cfg.Registered, Full: h.isFull, Log: h.log})
	return h, nil
}

// unusable says how to mend a state directory that cannot be used.
func unusable(state string, err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return &perdure.Error{Code: perdure.CodeInvalid, Message: fmt.Sprintf("the state directory %s cannot be used: %v", state, err), Hint: "name a directory that this user may create or write to: --state"}
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &perdure.Error{Code: perdure.CodeNoSpace, Message: fmt.Sprintf("the state directory %s has no space: %v", state, err), Hint: "free space on its file system, or name another directory: --state"}
	}
	return err
}

// Close releases the state directory.
func (h *Host) Close() {
	if h.groups != "" {
		_ = os.Remove(h.groups) // it fails while a command runs
	}
	_ = h.lock.Close()
}

// lockPatience is how long acquire waits for the lock. A child that the earlier process was starting when it was killed has the
// lock until it becomes another program.
const lockPatience = time.Second

// acquire locks the state directory. The lock ends with this process; keepers do not inherit it.
func (h *Host) acquire() error {
	path := filepath.Join(h.cfg.State, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	for end := time.Now().Add(lockPatience); ; time.Sleep(10 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return &perdure.Error{Code: perdure.CodeInUse, Message: fmt.Sprintf("another process uses the state directory %s", h.cfg.State), Hint: "stop it, or give this host a directory of its own: --state"}
		}
		return fmt.Errorf("locking %s: %w", path, err)
	}
	h.lock = f
	return nil
}

// identify reads the identity of the host, or makes it.
func identify(state, name string) (*identity, error) {
	path := filepath.Join(state, "host.json")
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		id := &identity{Name: name, Incarnation: incarnation()}
		return id, keeper.WriteFile(state, "host.json", id)
	case err != nil:
		return nil, err
	}
	id := &identity{}
	if err = json.Unmarshal(b, id); err == nil && id.Incarnation == "" {
		err = errors.New("incarnation is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): move the state directory away when no command of the host runs any more", path, err)
	}
	if id.Name != name {
		return nil, perdure.Refuse(perdure.CodeInvalid, "the state directory %s belongs to the host %s, not to %s: give this host a directory of its own (--state)", state, id.Name, name)
	}
	return id, nil
}

func incarnation() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// cgroups returns the directory for the cgroups of runs; "" if none can be created.
func (h *Host) cgroups(id *identity) string {
	if h.cfg.NoCgroups || h.cfg.Slurm != nil {
		return ""
	}
	base, err := keeper.OwnCgroup()
	dir := ""
	if err == nil {
		dir, err = keeper.NewCgroups(base, "perdure-"+id.Incarnation)
	}
	if err != nil {
		h.log.Info("no cgroups: processes of a run are found by their parents and their environment", "err", err)
	}
	return dir
}

func (h *Host) begun(run *perdure.Run, dir string) {
	if h.logs != nil {
		h.logs.begin(run, dir)
	}
}

func (h *Host) over(dir string) {
	if h.logs != nil {
		h.logs.end(dir)
	}
}

// Run claims and carries out runs until ctx ends, or the host is removed (ErrRemoved). The commands go on after that.
func (h *Host) Run(ctx context.Context) error {
	if h.logs != nil {
		logs, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		go h.logs.work(logs)
	}
	return h.loop.Run(ctx)
}

// Left returns how many commands go on, after Run has returned.
func (h *Host) Left() int { return h.agent.Left() }

// claimWait is how long a claim waits for runs. Meanwhile, what becomes free is offered by other claims, and a step that needs
// the parts of several claims waits for their ends.
const claimWait = 5 * time.Second

// register registers the host. Without space, all of its capacities are 0: the node raises an alert then, and closes it when
// there is space again.
func (h *Host) register(ctx context.Context, full, renews bool) (*operate.HostRegistered, error) {
	capacity := h.cfg.Capacity
	if full {
		capacity = perdure.Amounts{}
		for name := range h.cfg.Capacity {
			capacity[name] = 0
		}
	}
	boot, err := keeper.Boot()
	if err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.HostRegister)
	r, err := h.cfg.Hosts.RegisterHost(ctx, operate.HostRequest{Name: h.cfg.Name, Renews: renews, HostSettings: operate.HostSettings{Incarnation: h.id.Incarnation, Boot: boot,
		Grid: h.cfg.Grid, Labels: h.cfg.Labels, Capacity: capacity, Version: h.cfg.Version, Heartbeat: perdure.Duration(h.cfg.Heartbeat)}})
	crashpoint.Here(crashpoint.HostRegistered)
	if err == nil && r.Holder != h.Holder {
		err = fmt.Errorf("the server has registered the holder %s, and not %s", r.Holder, h.Holder)
	}
	return r, err
}

// isFull reports whether the file system of the state directory has too little space for further runs. If it was full, twice as
// much must be free, so that the state does not change all the time. If the free space is not known, the state stays.
func (h *Host) isFull(was bool) bool {
	var st syscall.Statfs_t
	err := syscall.Statfs(h.cfg.State, &st)
	if err != nil && !h.spaceUnknown {
		h.log.Warn("free space of the state directory not known", "dir", h.cfg.State, "err", err, "action", "check its file system")
	}
	if h.spaceUnknown = err != nil; h.spaceUnknown {
		return was
	}
	least := h.cfg.MinFree
	if was {
		least *= 2
	}
	return st.Bavail*uint64(st.Bsize) < least || st.Files > 0 && st.Ffree == 0
}
