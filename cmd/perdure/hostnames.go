package main

import (
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/rest"
)

// hostNameFlags are the flags for the host names for which a process serves requests.
type hostNameFlags struct {
	public  string
	allowed []string
	hosts   rest.Hosts // after check
}

// register adds the flags. A process without a public URL has only --allowed-hosts.
func (f *hostNameFlags) register(fs *pflag.FlagSet, public bool) {
	if public {
		fs.StringVar(&f.public, "public-url", "", "`URL` at which users reach this node; requests for its host are served")
	}
	fs.StringSliceVar(&f.allowed, "allowed-hosts", nil, "further host `NAMES` for which requests are served; '*' serves every host")
}

// check parses and validates the flags.
func (f *hostNameFlags) check() (err error) {
	if f.hosts, err = rest.ParseHosts(f.public, f.allowed); err != nil {
		return &usageError{msg: err.Error(), hint: "IP addresses, localhost, and names without a dot or under .local, .internal, .svc are always allowed"}
	}
	return nil
}
