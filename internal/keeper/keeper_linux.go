package keeper

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/crashpoint"
)

// Command is the first argument of a process that is a keeper. The second is the directory of its run.
const Command = "keeper"

// keeperVariable distinguishes a keeper from a program that has a command of this name.
const keeperVariable = "PERDURE_KEEPER"

// A program that imports this package becomes a keeper if its arguments say so. This happens before main, as soon as the
// imports of this package are initialized: the other packages of perdure take several times as long to be initialized as a
// process takes to start, and a keeper starts for each command. Go initializes packages in the order of their names, so the
// imports are few, and come early in the alphabet.
func init() {
	if len(os.Args) != 3 || os.Args[1] != Command || os.Getenv(keeperVariable) == "" {
		return
	}
	if err := run(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "perdure keeper:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

const (
	killPatience = 10 * time.Second       // how long the keeper tries to kill the remaining processes after the command has ended
	killPause    = 5 * time.Millisecond   // between two SIGKILLs
	drainTime    = 500 * time.Millisecond // how long the pipes are read after the last process of the run has ended
)

// readyFD is the pipe on which the host agent learns that keeper.json is there, or why the keeper cannot start.
const readyFD = 3

// keeper is the state of the process. Only its loop changes it.
type keeper struct {
	run    *Run
	record *exitRecord
	main   int // the command's process; 0: it was not started
	alarm  *alarm
	rules  Rules
}

// run runs the command of the directory dir to its end. It returns nil if another keeper has the run.
func run(dir string) error {
	ready := os.NewFile(readyFD, "ready")
	syscall.CloseOnExec(readyFD)
	crashpoint.Here(crashpoint.KeeperBegin)
	// The parent-death signal of the command belongs to the thread that forks.
	runtime.LockOSThread()
	// A handler in place of SIG_IGN, which the command would inherit. The host agent decides when the command ends, and
	// not a signal to all processes of a terminal or a service.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGQUIT)

	k, listener, err := prepare(dir)
	switch {
	case errors.Is(err, fs.ErrExist): // another keeper has the run
		return nil
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		_, _ = ready.WriteString("noSpace")
		return err
	case err != nil:
		_, _ = ready.WriteString(err.Error())
		return err
	}
	defer listener.close()
	crashpoint.Here(crashpoint.KeeperRecorded)
	_, _ = ready.WriteString("ready")
	_ = ready.Close()
	requests := make(chan request)
	go serve(listener, k.run.Handle, requests)
	exit := k.carryOut(requests)
	removeCgroup(k.run.Cgroup)
	exit.At = time.Now()
	crashpoint.Here(crashpoint.KeeperExit)
	if err := k.record.write(exit); err != nil {
		return fmt.Errorf("recording the exit: %w", err)
	}
	crashpoint.Here(crashpoint.KeeperExited)
	return nil
}

// prepare does everything that may fail before the command is started. It ends with keeper.json: from there on the run
// is this keeper's.
func prepare(dir string) (*keeper, *listener, error) {
	if err := os.Chdir(dir); err != nil {
		return nil, nil, err
	}
	r, err := ReadRun(".")
	if err != nil {
		return nil, nil, err
	}
	me, err := self()
	if err != nil {
		return nil, nil, err
	}
	if r.Boot != me.Boot || Now() >= r.Until {
		return nil, nil, errors.New("the lock of the run has ended")
	}
	if err := becomeSubreaper(); err != nil {
		return nil, nil, fmt.Errorf("becoming a subreaper: %w", err)
	}
	if err := os.Mkdir(WorkDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	k := &keeper{run: r, rules: NewRules(r)}
	if k.record, err = reserveExit("."); err != nil {
		return nil, nil, err
	}
	name := fmt.Sprintf("s%d", me.PID)
	_ = os.Remove(name) // of a dead keeper with this number, which had no keeper.json
	listener, err := listen(name)
	if err == nil {
		k.alarm, err = newAlarm()
	}
	crashpoint.Here(crashpoint.KeeperRecord)
	if err == nil {
		err = createKeeper(".", &Keeper{Process: me, Socket: name})
	}
	if err != nil {
		k.record.release()
		if listener != nil {
			listener.close()
		}
		return nil, nil, err
	}
	return k, listener, nil
}

// carryOut runs the command, and returns when it and all its descendants have ended.
func (k *keeper) carryOut(requests <-chan request) *Exit {
	output, err := k.start()
	if err != nil {
		e := &Exit{Cause: NotStarted, Message: err.Error()}
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			e.Errno = int(errno)
		} else if errors.Is(err, errNoProgram) {
			e.Errno = int(syscall.ENOENT)
		}
		return e
	}
	crashpoint.Here(crashpoint.KeeperStarted)
	ended, alone := make(chan syscall.WaitStatus, 1), make(chan struct{})
	go reap(k.main, ended, alone)
	k.arm()
	var status syscall.WaitStatus
	for running := true; running; {
		select {
		case status = <-ended:
			running = false
		case <-k.alarm.rang:
			k.signal(k.rules.Due(Now()))
		case q := <-requests:
			q.answer <- k.handle(q.op)
		}
	}
	crashpoint.Here(crashpoint.KeeperEnded)
	k.killRest(alone, requests)
	crashpoint.Here(crashpoint.KeeperAlone)
	output.finish()
	e := &Exit{Exit: status.ExitStatus(), Cause: k.rules.Cause(), Until: k.rules.Until(), OOM: k.run.Cgroup != "" && outOfMemory(k.run.Cgroup), Written: output.written()}
	if status.Signaled() {
		e.Signal = signalName(status.Signal())
	}
	return e
}

// signalName returns the name of a signal without SIG, or its number if it has no name: real-time signals have none.
func signalName(s syscall.Signal) string {
	if int(s) < len(signalNames) {
		return signalNames[s]
	}
	return strconv.Itoa(int(s))
}

// start starts the command, with pipes for its output.
func (k *keeper) start() (*output, error) {
	env := append(k.run.Env[:len(k.run.Env):len(k.run.Env)], handleVariable+"="+k.run.Handle)
	path := ""
	for _, kv := range env { // the last one counts
		if p, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = p
		}
	}
	program, err := findProgram(k.run.Command[0], path)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	out, err := newOutput()
	if err != nil {
		return nil, err
	}
	attr := &syscall.ProcAttr{Dir: WorkDir, Env: env, Files: []uintptr{null.Fd(), out.ends[0].Fd(), out.ends[1].Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	if u := k.run.User; u != nil {
		if err := os.Chown(WorkDir, int(u.UID), int(u.GID)); err != nil {
			out.finish()
			return nil, err
		}
		attr.Sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	if k.run.Cgroup != "" {
		cgroup, err := os.Open(k.run.Cgroup)
		if err != nil {
			out.finish()
			return nil, err
		}
		defer func() { _ = cgroup.Close() }()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(cgroup.Fd())
	}
	k.main, err = syscall.ForkExec(program, k.run.Command, attr)
	for _, end := range out.ends {
		_ = end.Close()
	}
	if err != nil {
		out.finish()
	}
	return out, err
}

// errNoProgram: the program is in no directory of PATH.
var errNoProgram = errors.New("executable file not found in $PATH")

// findProgram returns the file of a program: that in the first directory of path that has it, if its name has no slash.
func findProgram(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		if info, err := os.Stat(dir + "/" + name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return dir + "/" + name, nil
		}
	}
	return "", errNoProgram
}

// reap reaps all children, among them orphans of the run. It sends how the main process has ended, and closes alone when
// there is no child left after that.
func reap(main int, ended chan<- syscall.WaitStatus, alone chan<- struct{}) {
	defer close(alone)
	for gone := false; ; {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD
			if !gone {
				// Only this function reaps the command, so its end cannot be unknown here. 0 would mean that it is done.
				ended <- syscall.WaitStatus(syscall.SIGKILL)
			}
			return
		case pid == main && (status.Exited() || status.Signaled()):
			gone = true
			ended <- status
		}
	}
}

// handle carries out a request of the host agent.
func (k *keeper) handle(op operation) Status {
	switch op.Op {
	case opExtend:
		k.rules.Extend(op.Until)
		k.arm()
	case opStop:
		k.signal(k.rules.Stop(Now(), op.Within))
	}
	return k.status()
}

func (k *keeper) status() Status {
	return Status{Handle: k.run.Handle, Until: k.rules.Until(), Cause: k.rules.Cause()}
}

// signal signals the processes of the run, and sets the alarm for what is due next.
func (k *keeper) signal(s Signal) {
	switch s {
	case SignalTerm:
		signalAll(syscall.SIGTERM)
	case SignalKill:
		k.kill()
	case NoSignal:
	}
	k.arm()
}

// arm sets the alarm for what is due next.
func (k *keeper) arm() { k.alarm.set(k.rules.Next(Now())) }

func (k *keeper) kill() {
	if k.run.Cgroup != "" {
		killCgroup(k.run.Cgroup)
	}
	signalAll(syscall.SIGKILL)
}

// signalAll signals all descendants of this process.
func signalAll(sig syscall.Signal) {
	for pid, st := range descendants(os.Getpid()) {
		_ = signalProcess(pid, st.start, sig)
	}
}

// killRest kills what the command has left behind, until there is no child any more.
func (k *keeper) killRest(alone <-chan struct{}, requests <-chan request) {
	wait := time.NewTimer(killPause)
	defer wait.Stop()
	for end := time.Now().Add(killPatience); time.Now().Before(end); {
		select {
		case <-alone:
			return
		case q := <-requests:
			q.answer <- k.status()
		case <-wait.C:
			k.kill()
			wait.Reset(killPause)
		}
	}
	fmt.Fprintln(os.Stderr, "perdure keeper: processes of the run do not end after SIGKILL")
}

// output are the pipes of a command, and the goroutines that read them. They always read, so that the command waits no
// longer than for a pipe.
type output struct {
	ends    []*os.File // of the command
	readers []*os.File
	streams []*streamWriter
	done    []chan struct{}
}

func newOutput() (*output, error) {
	o := &output{}
	for _, name := range []string{Stdout, Stderr} {
		s, err := newStream(".", name, HeadBytes, SegmentBytes)
		var r, w *os.File
		if err == nil {
			r, w, err = os.Pipe()
		}
		if err != nil {
			o.finish()
			return nil, err
		}
		done := make(chan struct{})
		o.ends, o.readers, o.streams, o.done = append(o.ends, w), append(o.readers, r), append(o.streams, s), append(o.done, done)
		go func() {
			defer close(done)
			defer s.close()
			_, _ = io.CopyBuffer(struct{ io.Writer }{s}, struct{ io.Reader }{r}, make([]byte, 64<<10)) // without splice, for which a file is no target
		}()
	}
	return o, nil
}

// finish reads what is left in the pipes. A process that could not be killed may hold them open; it is not waited for.
func (o *output) finish() {
	for _, end := range o.ends {
		_ = end.Close()
	}
	for i, r := range o.readers {
		_ = r.SetReadDeadline(time.Now().Add(drainTime))
		<-o.done[i]
		_ = r.Close()
	}
}

// written returns how much the command has written. It may be called after finish.
func (o *output) written() *Written {
	return &Written{Stdout: o.streams[0].total, Stderr: o.streams[1].total}
}

// alarm is a timer on CLOCK_BOOTTIME: timers of Go do not count the time while the machine is suspended.
type alarm struct {
	file *os.File
	rang chan struct{}
}

func newAlarm() (*alarm, error) {
	file, err := newTimer()
	if err != nil {
		return nil, fmt.Errorf("creating a timer: %w", err)
	}
	a := &alarm{file: file, rang: make(chan struct{}, 1)}
	go func() {
		for b := make([]byte, 8); ; {
			if _, err := a.file.Read(b); err != nil {
				return
			}
			select {
			case a.rang <- struct{}{}:
			default:
			}
		}
	}()
	return a, nil
}

// set sets the time of the alarm, at once if it is past.
func (a *alarm) set(at int64) {
	raw, err := a.file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		setTimer(fd, max(at, 1))
	})
}
