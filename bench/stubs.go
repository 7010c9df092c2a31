package main

import (
	"context"
	"syscall"
)

func serveAgent(ctx context.Context, args []string) error { return nil }
func serveNode(ctx context.Context, args []string) error  { return nil }
func buildTemporal(context.Context, *runner) error        { return nil }
func credentials(c *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: c}
}
