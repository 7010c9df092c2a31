// Package speed names the devices that make Perdure faster without changing what it does, and switches them off, to
// measure what each is worth and to test that nothing depends on it:
//
//	PERDURE_WITHOUT=pass,marks go test ./store/postgres
//
// docs/performance.md has the benefit and the cost of each.
package speed

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Variable is the environment variable that lists the devices that are off, separated by commas; "all" is all of them.
// It is read once, when the program starts.
const Variable = "PERDURE_WITHOUT"

// Device is one device. All are on unless Variable says otherwise.
type Device string

const (
	ImplicitRows Device = "implicit-rows"
	Marks        Device = "marks"
	Pass         Device = "pass"
	Bundles      Device = "bundles"
	KnownRows    Device = "known-rows"
	Hold         Device = "hold"
	ClaimAhead   Device = "claim-ahead"
	LookLater    Device = "look-later"
)

// Devices are all devices.
var Devices = []Device{ImplicitRows, Marks, Pass, Bundles, KnownRows, Hold, ClaimAhead, LookLater}

var off = func() map[Device]bool {
	list, err := Parse(os.Getenv(Variable))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Variable, err)
		os.Exit(2)
	}
	off := map[Device]bool{}
	for _, d := range list {
		off[d] = true
	}
	return off
}()

// On reports whether the device is in use.
func (d Device) On() bool { return !off[d] }

// Parse reads a list of devices. The error names the first one that there is not.
func Parse(list string) (devices []Device, err error) {
	for name := range strings.SplitSeq(list, ",") {
		switch d := Device(strings.TrimSpace(name)); {
		case d == "":
		case d == "all":
			return Devices, nil
		case !slices.Contains(Devices, d):
			return nil, fmt.Errorf("there is no device %q; there are all, %s", d, Names())
		default:
			devices = append(devices, d)
		}
	}
	return devices, nil
}

// Names lists all devices.
func Names() string {
	all := make([]string, len(Devices))
	for i, d := range Devices {
		all[i] = string(d)
	}
	return strings.Join(all, ", ")
}
