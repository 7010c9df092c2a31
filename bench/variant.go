package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/speed"
)

// variant is how a system is measured once more, in the same rounds, beside itself.
type variant struct {
	of          string   // the system; "": it is no variant
	program     string   // what measures it; "": this program
	environment []string // what the process that measures it finds beside the environment of this one
}

// base is the name of the system of which this may be a variant.
func (k Kind) base() string { return cmp.Or(k.of, k.Name) }

// withVariants adds the variants of these systems that are asked for, each behind its system.
func withVariants(systems []string, without, gogc, older, notify string) ([]string, error) {
	var lists []string
	for list := range strings.SplitSeq(without, ",") {
		if _, err := speed.Parse(strings.ReplaceAll(list, "+", ",")); err != nil {
			return nil, err
		}
		if list != "" {
			lists = append(lists, list)
		}
	}
	if older != "" {
		if _, err := os.Stat(older); err != nil {
			return nil, err
		}
	}
	var receivers []string
	for receiver := range strings.SplitSeq(notify, ",") {
		switch receiver {
		case "":
		case notifyPaused, notifyStream, notifyWebhook:
			receivers = append(receivers, receiver)
		default:
			return nil, fmt.Errorf("--notify: %q is no receiver: use %s, %s or %s", receiver, notifyPaused, notifyStream, notifyWebhook)
		}
	}
	var all []string
	for _, name := range systems {
		k, _ := kindOf(name)
		all = append(all, name)
		add := func(suffix string, v variant) {
			v.of = name
			other := k
			other.Name, other.variant, other.Settings = name+suffix, v, []string{"as " + name + ", but" + suffix}
			kinds = slices.Insert(kinds, slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == all[len(all)-1] })+1, other)
			all = append(all, other.Name)
		}
		if k.Ours {
			for _, list := range lists {
				add(" without "+list, variant{environment: []string{speed.Variable + "=" + strings.ReplaceAll(list, "+", ",")}})
			}
			if older != "" {
				add(" of "+filepath.Base(older), variant{program: older})
			}
		}
		if _, ok := k.New(&Env{}).(*perdureNode); ok {
			for _, receiver := range receivers {
				add(" with a "+receiver, variant{environment: []string{notifyVariable + "=" + receiver}})
			}
		}
		for percent := range strings.SplitSeq(gogc, ",") {
			if percent != "" {
				add(" with GOGC="+percent, variant{environment: []string{"GOGC=" + percent}})
			}
		}
	}
	return all, nil
}
