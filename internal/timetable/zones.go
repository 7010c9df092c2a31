package timetable

import (
	"bufio"
	"os"
	"strings"
)

// EmbeddedZones is the version of the time zone database that the program has in it (package time/tzdata of Go 1.26). A
// test compares it with that of the Go installation.
const EmbeddedZones = "2025c"

// zoneDirs are where package time looks for the database of the system, before it uses the embedded one.
var zoneDirs = []string{"/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo"}

// Zones returns the version of the time zone database that schedules use, and the directory that has it; an empty directory:
// the database is embedded. The version of a directory that does not say it is "unknown".
func Zones() (version, dir string) {
	if set := os.Getenv("ZONEINFO"); set != "" {
		if _, err := os.Stat(set); err == nil {
			return zonesIn(set), set
		}
	}
	for _, dir := range zoneDirs {
		if _, err := os.Stat(dir + "/UTC"); err == nil {
			return zonesIn(dir), dir
		}
	}
	return EmbeddedZones, ""
}

// zonesIn reads the version of a directory: tzdata.zi begins with it, or the file +VERSION has it.
func zonesIn(dir string) string {
	if b, err := os.ReadFile(dir + "/+VERSION"); err == nil && len(b) < 64 {
		return strings.TrimSpace(string(b))
	}
	f, err := os.Open(dir + "/tzdata.zi")
	if err != nil {
		return "unknown"
	}
	defer func() { _ = f.Close() }()
	line, _ := bufio.NewReader(f).ReadString('\n')
	if version, ok := strings.CutPrefix(strings.TrimSpace(line), "# version "); ok && len(version) < 64 {
		return version
	}
	return "unknown"
}
