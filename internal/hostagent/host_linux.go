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
	"regexp"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/exec"
	"github.com/perdure/perdure/internal/agenthost"
<<<<<<< HEAD
	"github.com/perdure/perdure/internal/crashpoint"
=======
	"github.com/perdure/perdure/internal/env"
>>>>>>> main
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/slurm"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// Defaults and bounds of Config.
const (
	DefaultSlots     = 10
	MaxSlots         = 1000
	DefaultHeartbeat = time.Minute
	DefaultKeep      = time.Hour
	DefaultMinFree   = 64 << 20
)

// Config configures a host. Exchange, Name and State are required.
type Config struct {
	Exchange   protocol.Exchange
	Name       string             // of the host; see CheckName
	State      string             // the state directory, which is created if it is missing
	Hosts      Registrar          // registers the host
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
	Heartbeat  time.Duration      // the runs expire so long after this host was heard of last; 0: DefaultHeartbeat
	Keep       time.Duration      // how long the directory of a reported run is kept; 0: not at all
	MinFree    uint64             // bytes that must be free in the file system of State; 0: DefaultMinFree
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

	noSpace atomic.Bool // the state directory is full

	groups string // the directory of the cgroups of runs; "": none
	id     *identity
	logs   *uploader // nil: none

	// Holder is the holder of the runs of this host.
	Holder string
}

var names = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// CheckName returns what is wrong with the name of a host; nil if it is valid.
func CheckName(name string) error {
	if !names.MatchString(name) {
		return fmt.Errorf("%q is not a name of a host: 1 to 63 letters, digits, dots, hyphens and underscores, with a letter or digit at both ends", name)
	}
	return nil
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
	if cfg.Slots <= 0 {
		cfg.Slots = DefaultSlots
	}
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = DefaultHeartbeat
	}
	if cfg.MinFree == 0 {
		cfg.MinFree = DefaultMinFree
	}
	if err := CheckName(cfg.Name); err != nil {
		return nil, err
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
<<<<<<< HEAD
		h.agent, err = exec.New(exec.Config{Slots: MaxSlots, Dir: runs, Host: cfg.Name, StopWithin: cfg.StopWithin, Commands: cfg.Commands,
			User: cfg.User, Users: cfg.Users, Slurm: cfg.Slurm, Cgroups: h.groups, Left: func(run *perdure.Run) time.Duration { return h.host.Left(run) }, Ending: ending, Full: h.noteFull, Begun: h.begun, Over: h.over, Log: h.log})
=======
		h.agent, err = exec.New(exec.Config{Slots: MaxSlots, Dir: runs, Host: cfg.Name, StopWithin: cfg.StopWithin, Commands: cfg.Commands, Artifacts: cfg.Artifacts,
			User: cfg.User, Slurm: cfg.Slurm, Cgroups: h.groups, Left: func(run *perdure.Run) time.Duration { return h.host.Left(run) }, Ending: ending, Full: func() { h.loop.NoteFull() }, Begun: h.begun, Over: h.over, Log: h.log})
>>>>>>> main
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
		Register: h.register, Full: h.isFull, Log: h.log})
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

// acquire locks the state directory. The lock ends with this process; keepers do not inherit it.
func (h *Host) acquire() error {
	path := filepath.Join(h.cfg.State, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
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

func ending(cause error) exec.Ending {
	switch agenthost.EndingOf(cause) {
	case agenthost.Stop:
		return exec.Stop
	case agenthost.Kill:
		return exec.Kill
	case agenthost.Leave:
	}
	return exec.Leave
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

// Run claims and carries out runs until ctx ends. The commands go on after that.
func (h *Host) Run(ctx context.Context) error {
<<<<<<< HEAD
	pending, err := h.agent.Pending()
	if err != nil {
		return err
	}
	h.host.Pause(true)
	h.noteSpace(h.isFull())
	registered, err := h.register(ctx)
	if err != nil || registered == nil {
		return err
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	ended := make(chan error, 1)
	go func() { ended <- h.host.Run(life) }()
	if h.logs != nil {
		go h.logs.work(life)
	}
	adopted := make(chan error, 1)
	go func() { adopted <- h.adopt(ctx, pending) }()

	check, sweep, renew := time.NewTicker(checkEvery), time.NewTicker(sweepEvery), time.NewTicker(min(h.cfg.Heartbeat/3, renewMost))
	defer check.Stop()
	defer sweep.Stop()
	defer renew.Stop()
	renewed := make(chan *registration, 1)
	var drained <-chan time.Time // the deadline of a drain
	h.agent.Sweep(h.cfg.Keep)
	adopting := true
	for {
		draining := registered.State != operate.HostReady
		if !draining {
			drained = nil
		} else if drained == nil && !registered.DrainBy.IsZero() {
			h.log.Info("the host is drained; what runs at the deadline is stopped", "host", h.cfg.Name, "deadline", registered.DrainBy)
			drained = time.After(time.Until(registered.DrainBy))
		}
		// Without space nothing is claimed, nor before the node knows that there is some again.
		h.host.Pause(adopting || h.noSpace.Load() || registered.noSpace || draining)
		select {
		case <-renew.C:
			go h.renew(life, renewed)
		case r := <-renewed:
			if r.State != registered.State {
				h.log.Info("state of the host changed", "host", h.cfg.Name, "state", r.State)
			}
			if registered = r; r.noSpace != h.noSpace.Load() { // it has changed meanwhile
				go h.renew(life, renewed)
			}
		case <-drained:
			h.host.CutShort()
			drained = time.After(checkEvery) // runs that arrived late
		case err := <-adopted:
			if adopting = false; err != nil && ctx.Err() == nil {
				return err
			}
		case <-check.C:
			if h.noteSpace(h.isFull()) {
				go h.renew(life, renewed)
			}
		case <-h.full:
			if h.noteSpace(true) {
				go h.renew(life, renewed)
			}
		case <-sweep.C:
			h.agent.Sweep(h.cfg.Keep)
		case err := <-ended:
			return err
		case <-ctx.Done():
			quiet, cancel := context.WithTimeout(life, leaveTime)
			h.host.Quiesce(quiet)
			cancel()
			end(errLeft)
			if err := <-ended; !errors.Is(err, errLeft) {
				return err
			}
			return nil
		}
=======
	if h.logs != nil {
		logs, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		go h.logs.work(logs)
>>>>>>> main
	}
	return h.loop.Run(ctx)
}

// claimWait is how long a claim waits for runs. Meanwhile, what becomes free is offered by other claims, and a step that needs
// the parts of several claims waits for their ends.
const claimWait = 5 * time.Second

<<<<<<< HEAD
// registration is the answer to a registration.
type registration struct {
	*operate.HostRegistered
	noSpace bool // the host has said that it has no space
}

// register registers the host, and repeats that until it is answered. It returns nil if ctx ends first.
func (h *Host) register(ctx context.Context) (*registration, error) {
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		r, err := h.registerOnce(ctx)
		switch code := perdure.CodeOf(err); {
		case err == nil:
			return r, nil
		case ctx.Err() != nil:
			return nil, nil
		case code != "" && code != perdure.CodeUnavailable:
			return nil, err
		}
		h.log.Warn("host not registered; retrying", "host", h.cfg.Name, "err", err, "action", "check server and network")
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(pause):
		}
	}
}

// registerOnce registers the host. Without space, all of its capacities are 0: the node raises an alert then, and closes it
// when there is space again.
func (h *Host) registerOnce(ctx context.Context) (*registration, error) {
	noSpace, capacity := h.noSpace.Load(), h.cfg.Capacity
	if noSpace {
		capacity = perdure.Amounts{}
		for name := range h.cfg.Capacity {
			capacity[name] = 0
		}
	}
	ctx, cancel := context.WithTimeout(ctx, registerTime)
	defer cancel()
=======
// register registers the host.
func (h *Host) register(ctx context.Context) (*operate.HostRegistered, error) {
>>>>>>> main
	boot, err := keeper.Boot()
	if err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.HostRegister)
	r, err := h.cfg.Hosts.RegisterHost(ctx, operate.HostRequest{Name: h.cfg.Name, HostSettings: operate.HostSettings{Incarnation: h.id.Incarnation, Boot: boot,
		Grid: h.cfg.Grid, Labels: h.cfg.Labels, Capacity: capacity, Version: h.cfg.Version, Heartbeat: perdure.Duration(h.cfg.Heartbeat)}})
	crashpoint.Here(crashpoint.HostRegistered)
	if err == nil && r.Holder != h.Holder {
		err = fmt.Errorf("the server has registered the holder %s, and not %s", r.Holder, h.Holder)
	}
	return &registration{r, noSpace}, err
}

<<<<<<< HEAD
const (
	// registerTime bounds a registration.
	registerTime = 10 * time.Second
	// renewMost is the longest time between two registrations: so soon a host knows of its drain.
	renewMost = 10 * time.Second
)

// renew registers the host again: it is the host's sign of life.
func (h *Host) renew(ctx context.Context, to chan<- *registration) {
	r, err := h.registerOnce(ctx)
	if err != nil {
		if ctx.Err() == nil {
			h.log.Warn("registration of the host not renewed", "host", h.cfg.Name, "err", err, "action", "check server and network")
		}
		return
	}
	select {
	case to <- r:
	case <-ctx.Done():
	}
}

var errLeft = errors.New("the host agent ends, and its commands go on")

// adopt continues with the runs of the earlier process.
func (h *Host) adopt(ctx context.Context, pending []perdure.Run) error {
	if len(pending) == 0 {
		return nil
	}
	h.log.Info("continuing with runs of the earlier process", "runs", len(pending))
	crashpoint.Here(crashpoint.HostAdopt)
	over, err := h.host.Adopt(ctx, exec.Name, pending)
	crashpoint.Here(crashpoint.HostAdopted)
	for i := range over {
		h.log.Warn("run discarded: no longer valid", "job", over[i].Job.String(), "step", over[i].Step, "run", over[i].Number)
		h.agent.Discard(&over[i])
	}
	if err == nil {
		h.log.Info("runs of the earlier process continued", "runs", len(pending)-len(over), "discarded", len(over))
	}
	return err
}

=======
>>>>>>> main
// isFull reports whether the file system of the state directory has too little space for further runs.
func (h *Host) isFull() bool {
	var st syscall.Statfs_t
	if err := syscall.Statfs(h.cfg.State, &st); err != nil {
		h.log.Warn("free space of the state directory not known", "dir", h.cfg.State, "err", err)
		return false
	}
	return st.Bavail*uint64(st.Bsize) < h.cfg.MinFree || st.Files > 0 && st.Ffree == 0
}
<<<<<<< HEAD

// noteSpace notes whether the state directory is full, and reports whether that has changed.
func (h *Host) noteSpace(full bool) (changed bool) {
	if h.noSpace.Swap(full) == full {
		return false
	}
	h.logFull(full)
	return true
}

func (h *Host) logFull(full bool) {
	if full {
		h.log.Error("state directory full; nothing is claimed", "dir", h.cfg.State, "action", "free space on its file system")
		return
	}
	h.log.Info("state directory has space again; claiming", "dir", h.cfg.State)
}
=======
>>>>>>> main
