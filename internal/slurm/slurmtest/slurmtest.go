// Package slurmtest starts a Slurm of one machine for a test: munged, slurmctld and slurmd, with a configuration, a key and
// ports of their own. They do not touch a Slurm that the machine may already have.
package slurmtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	envRequire = "PERDURE_TEST_REQUIRE_SLURM"
	// startTime bounds the start of the cluster, and each of its commands.
	startTime = 30 * time.Second
)

// MinJobAge is for how long the controller remembers a job that has ended.
const MinJobAge = 300 * time.Second

// config is slurm.conf. TaskPlugin and ProctrackType are those that need no cgroup, so that the cluster runs in a container.
const config = `ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmUser=%[2]s
SlurmdUser=%[2]s
AuthType=auth/munge
AuthInfo=socket=%[3]s/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=defer,batch_sched_delay=0,sched_interval=1
MinJobAge=%[4]d
MpiDefault=none
MessageTimeout=3
SlurmdParameters=config_overrides
MailProg=/bin/true
KillWait=5
ReturnToService=2
SlurmctldPort=%[5]d
SlurmdPort=%[6]d
StateSaveLocation=%[3]s/state
SlurmdSpoolDir=%[3]s/spool
SlurmctldPidFile=%[3]s/slurmctld.pid
SlurmdPidFile=%[3]s/slurmd.pid
SlurmctldLogFile=%[3]s/slurmctld.log
SlurmdLogFile=%[3]s/slurmd.log
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`

// Cluster is a running Slurm.
type Cluster struct {
	Config string // path of slurm.conf, for SLURM_CONF
	dir    string
	node   string

	munged, controller, daemon *process
}

// process is a daemon in the foreground.
type process struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	ended  chan struct{}
}

// Start starts a cluster that ends with the test. Without Slurm the test is skipped, unless PERDURE_TEST_REQUIRE_SLURM=1.
func Start(t testing.TB) *Cluster {
	t.Helper()
	if missing := missing(); missing != "" {
		if os.Getenv(envRequire) == "1" {
			t.Fatalf("slurmtest: %s=1, and there is no %s", envRequire, missing)
		}
		t.Skipf("slurmtest: there is no %s on this machine", missing)
	}
	c, err := start(t)
	if err != nil {
		t.Fatalf("slurmtest: %v%s", err, c.logs())
	}
	return c
}

func missing() string {
	for _, name := range []string{"munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel"} {
		if _, err := program(name); err != nil {
			return name
		}
	}
	return ""
}

// program finds a program, also where daemons are.
func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	return path, err
}

func start(t testing.TB) (*Cluster, error) {
	// The path of a unix socket has at most 108 bytes; t.TempDir may be longer.
	dir, err := os.MkdirTemp("", "slurm")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Config: filepath.Join(dir, "slurm.conf"), dir: dir}
	t.Cleanup(func() {
		for _, p := range []*process{c.daemon, c.controller, c.munged} {
			p.kill()
		}
		_ = os.RemoveAll(dir)
	})
	host, err := os.Hostname()
	if err != nil {
		return c, err
	}
	c.node, _, _ = strings.Cut(host, ".")
	me, err := user.Current()
	if err != nil {
		return c, err
	}
	for _, sub := range []string{"state", "spool"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return c, err
		}
	}
	ports, err := freePorts(2)
	if err != nil {
		return c, err
	}
	text := fmt.Sprintf(config, c.node, me.Username, dir, int(MinJobAge.Seconds()), ports[0], ports[1])
	if err := os.WriteFile(c.Config, []byte(text), 0o600); err != nil {
		return c, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // munged refuses a socket that others cannot reach
		return c, err
	}
	key := make([]byte, 1024)
	_, _ = rand.Read(key)
	if err := os.WriteFile(filepath.Join(dir, "munge.key"), key, 0o600); err != nil {
		return c, err
	}
	if c.munged, err = c.run("munged", "--foreground", "--force", "--key-file="+dir+"/munge.key", "--socket="+dir+"/munge.socket",
		"--pid-file="+dir+"/munge.pid", "--log-file="+dir+"/munge.log", "--seed-file="+dir+"/munge.seed"); err != nil {
		return c, err
	}
	if err := c.until("munged listens", func() bool { _, err := os.Stat(dir + "/munge.socket"); return err == nil }); err != nil {
		return c, err
	}
	if err := c.StartController(); err != nil {
		return c, err
	}
	return c, c.StartDaemon()
}

// StartController starts slurmctld, and waits until it answers.
func (c *Cluster) StartController() (err error) {
	if c.controller, err = c.run("slurmctld", "-D", "-f", c.Config); err != nil {
		return err
	}
	return c.until("slurmctld answers", func() bool {
		out, err := c.Command("scontrol", "ping").Output()
		return err == nil && bytes.Contains(out, []byte("is UP"))
	})
}

// KillController kills slurmctld without a warning.
func (c *Cluster) KillController() { c.controller.kill() }

// StartDaemon starts slurmd, and waits until its node takes jobs.
func (c *Cluster) StartDaemon() (err error) {
	if c.daemon, err = c.run("slurmd", "-D", "-f", c.Config, "-N", c.node); err != nil {
		return err
	}
	return c.until("the node takes jobs", func() bool {
		out, err := c.Command("sinfo", "--noheader", "--format=%T").Output()
		state := strings.TrimSpace(string(out))
		return err == nil && (state == "idle" || state == "mixed" || state == "allocated")
	})
}

// KillDaemon kills slurmd without a warning. Its jobs go on.
func (c *Cluster) KillDaemon() { c.daemon.kill() }

// Resume lets a node take jobs again that the controller has drained.
func (c *Cluster) Resume() {
	_ = c.Command("scontrol", "update", "NodeName="+c.node, "State=RESUME").Run() // it fails if the node is not drained
}

// Command returns a command of Slurm's, for this cluster.
func (c *Cluster) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+c.Config)
	return cmd
}

func (c *Cluster) run(name string, args ...string) (*process, error) {
	path, err := program(name)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.Env = append(os.Environ(), "SLURM_CONF="+c.Config)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	return p, nil
}

func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (c *Cluster) until(what string, is func() bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v", what, startTime)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// logs returns the end of each daemon's log.
func (c *Cluster) logs() string {
	if c == nil {
		return ""
	}
	var b strings.Builder
	for _, name := range []string{"munge.log", "slurmctld.log", "slurmd.log"} {
		text, _ := os.ReadFile(filepath.Join(c.dir, name))
		fmt.Fprintf(&b, "\n%s:\n%s", name, text[max(0, len(text)-2000):])
	}
	for _, p := range []*process{c.munged, c.controller, c.daemon} {
		if p != nil {
			fmt.Fprintf(&b, "\n%s: %s", p.cmd.Path, p.output.Bytes())
		}
	}
	return b.String()
}

func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
