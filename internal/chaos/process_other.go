//go:build !unix

package chaos

import "os/exec"

const canFreeze = false

func apart(*exec.Cmd)    {}
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
func ask(cmd *exec.Cmd)  { _ = cmd.Process.Kill() }
func freeze(*exec.Cmd)   {}
func thaw(*exec.Cmd)     {}
