// Package hook lets the simulation of whole grids (internal/sim) replace what a node takes from its process, and observe
// the components of the node. Nothing else uses it.
package hook

import (
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/supervisor"
	"github.com/perdure/perdure/internal/webhook"
)

// Hooks are the replacements and observers of one node. All fields but Webhooks and Service are required. A function may change the configuration
// of a component before the component is made; AgentHost makes the component itself.
type Hooks struct {
	Env      env.Env
	ID       string // of the node
	NewID    func() perdure.JobID
	Compiler Compiler

	Scheduler  func(*scheduler.Config)
	Supervisor func(*supervisor.Config)
	Elector    func(*election.Config)
	AgentHost  func(agenthost.Config) *agenthost.Host
	Webhooks   func(*webhook.Config)
	Service    func(*service.Config)
}

// Compiler compiles definitions, and shapes that were stored.
type Compiler interface {
	service.Compiler
	kernel.Compiler
}
