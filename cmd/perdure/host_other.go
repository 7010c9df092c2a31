//go:build !linux

package main

import "github.com/spf13/cobra"

func (a *app) runHost(*cobra.Command, hostOptions) error {
	return &usageError{msg: "perdure host runs on Linux only", hint: `"perdure agent --agents shell" runs programs here`}
}
