package console_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/console"
	"github.com/perdure/perdure/node"
)

var refresh = flag.Bool("refresh", false, "write the pictures of docs/console.md again")

const (
	picturesDir     = "../docs/pictures/console"
	maxPictureBytes = 100_000
)

// Every picture of docs/console.md exists in light and dark and is small, and no other picture is kept. With -refresh, the
// pictures are made from the console as it is built.
func TestPicturesOfTheConsole(t *testing.T) {
	if *refresh {
		writePictures(t)
	}
	page, err := os.ReadFile("../docs/console.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, match := range regexp.MustCompile(`pictures/console/([\w-]+\.png)`).FindAllSubmatch(page, -1) {
		if name := string(match[1]); !slices.Contains(shown, name) {
			shown = append(shown, name)
		}
	}
	files, err := filepath.Glob(filepath.Join(picturesDir, "*"))
	if err != nil || len(shown) == 0 {
		t.Fatalf("docs/console.md shows %d pictures: %v", len(shown), err)
	}
	for _, file := range files {
		if !slices.Contains(shown, filepath.Base(file)) {
			t.Errorf("%s is shown nowhere in docs/console.md", file)
		}
	}
	for _, name := range shown {
		info, err := os.Stat(filepath.Join(picturesDir, name))
		if err != nil {
			t.Errorf("docs/console.md: %v; go test ./console -run Pictures -refresh makes it", err)
		} else if info.Size() > maxPictureBytes {
			t.Errorf("%s has %d bytes; at most %d are allowed", name, info.Size(), maxPictureBytes)
		}
	}
}

func writePictures(t *testing.T) {
	t.Helper()
	nodeJS, chromium := tools(t), lookChromium(t)
	if !console.Built() {
		t.Fatal("the console is not built: run `make console`")
	}
	if err := os.MkdirAll(picturesDir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONSOLE_URL", startNode(t, "127.0.0.1:0", fillForPictures))
	t.Setenv("CHROMIUM", chromium)
	t.Setenv("PICTURES", picturesDir)
	t.Log(run(t, nodeJS, "e2e/pictures.mjs"))
}

// fillForPictures submits the jobs of a shop, and waits until they are in the states that the pictures show.
func fillForPictures(t *testing.T, n *node.Node) {
	t.Helper()
	submit := func(definition string) {
		t.Helper()
		if _, _, err := n.Submit(t.Context(), []byte(definition), "application/yaml"); err != nil {
			t.Fatalf("%v in\n%s", err, definition)
		}
	}
	order := func(number int, onFailure, fail, carrier string) {
		submit(fmt.Sprintf(`type: order
key: order-%d
labels: {customer: c-%d, region: %s}
input: {order: order-%d, amount: %d.90, lines: [{sku: assam, units: 2}, {sku: sencha, units: 1}]}
onFailure: %s
completeWithin: 4h
steps:
  reserve: {agent: stock, undo: {}}
  charge: {agent: payments, after: [reserve], with: {fail: '%s'}, undo: {}, retry: {attempts: 5, backoff: 10ms}}
  invoice: {agent: stock, after: [reserve], undo: {}}
  ship: {agent: %s, after: [charge, invoice], with: {}, completeWithin: 1h}
  mail: {agent: stock, after: [ship]}
`, number, number%60, []string{"eu", "us"}[number%2], number, number%90+10, onFailure, fail, carrier))
	}
	const declined = "declined:the bank says no: 51 insufficient funds"
	for number := 1030; number < 1038; number++ {
		order(number, "park", "", "stock")
	}
	order(1038, "undo", "the card has expired", "stock")
	order(1039, "park", "", "stock")
	order(1040, "park", declined, "stock")
	order(1041, "park", "", "carrier")
	order(1042, "park", declined, "stock")
	order(1043, "undo", "the card is stolen", "stock")
	order(1044, "park", "", "carrier")
	submit("type: refund\nkey: refund-77\nsteps:\n  approve: {agent: approval, with: {message: 'Refund 412.00 to c-77?', group: finance}}\n  pay: {agent: payments, action: charge, after: [approve], with: {}}\n")
	var pages []string
	var catalogue strings.Builder
	catalogue.WriteString("type: print\nkey: print-2027\nsteps:\n  split: {agent: stock}\n")
	for i := range 98 {
		pages = append(pages, fmt.Sprintf("page_%03d", i+1))
		fail := ""
		if i == 16 {
			fail = "the picture is missing"
		}
		fmt.Fprintf(&catalogue, "  %s: {agent: payments, action: charge, after: [split], with: {fail: '%s'}}\n", pages[i], fail)
	}
	fmt.Fprintf(&catalogue, "  bind: {agent: stock, after: [%s]}\n  ship: {agent: carrier, after: [bind], with: {}}\n", strings.Join(pages, ", "))
	submit(catalogue.String())
	for name, most := range map[string]int{"agent:payments": 20, "agent:reports": 0, "job:order": 50} {
		if _, err := n.PutLimit(t.Context(), name, perdure.LimitSettings{Max: &most}); err != nil {
			t.Fatal(err)
		}
	}
	for ref, phase := range map[string]perdure.Phase{"order-1040": perdure.Parked, "order-1042": perdure.Parked, "order-1043": perdure.Settled, "order-1044": perdure.Running, "print-2027": perdure.Parked} {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			job, err := n.Job(t.Context(), ref, 0)
			if err != nil {
				t.Fatal(err)
			}
			if job.Phase == phase && (phase != perdure.Running || job.Steps.Get("ship").Phase == phase) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is %s after 30 s, not %s", ref, job.Phase, phase)
			}
		}
	}
}
