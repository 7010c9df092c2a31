package kernel

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

var refresh = flag.Bool("refresh", false, "rewrite the transcripts in testdata")

// plays are written as transcripts to testdata, one file each.
var plays = []struct {
	name, definition string
	play             func(w *world)
}{
	{"undone_midway", "onFailure undo; reserve undo; charge undo after reserve reads reserve; ship after charge", func(w *world) {
		w.run("reserve", "charge")
		w.claim("ship")
		w.wait(4 * time.Second)
		w.undo() // an operator decides otherwise, while ship is in flight
		w.report("ship", done, output(`"on its way"`))
		w.run("charge", "reserve")
		w.undo()
	}},
	{"unsure_on_both_sides", "reserve undo; charge undo after reserve reads reserve; ship after charge", func(w *world) {
		w.run("reserve")
		w.claim("charge")
		w.wait(tick) // no report comes
		w.tryReport("charge", 1, done)
		w.undo()
		w.claim("charge")
		w.redo() // while the undo is in flight
		w.wait(tick)
		w.resume()
		w.claim("charge") // the undo is completed first, under its key
		w.report("charge", done)
		w.run("charge", "ship") // done again, under a new key
	}},
	{"wait_ended_by_operator", "reserve; charge after reserve attempts 2 or wait:2,park", func(w *world) {
		w.run("reserve")
		w.claim("charge")
		w.report("charge", failed, retryAfter(time.Minute))
		w.act(perdure.VerbResume, "charge") // the cause is mended: the backoff need not end
		w.claim("charge")
		w.report("charge", failed)
		w.wait(tick)
		w.claim("charge")
		w.report("charge", failed) // waits on its rung
		w.resume()
		w.run("charge")
	}},
	{"restart", "reserve undo; charge undo after reserve attempts 2 or restart:1; ship after charge", func(w *world) {
		w.run("reserve")
		w.claim("charge")
		w.report("charge", failed)
		w.wait(tick)
		w.claim("charge")
		w.report("charge", failed)
		w.run("charge", "reserve")         // undone
		w.run("reserve", "charge", "ship") // and done again
	}},
	{"parked_edited_resumed", "reserve undo; charge undo after reserve; ship after charge", func(w *world) {
		w.run("reserve")
		w.claim("charge")
		w.report("charge", rejected, noEffect)
		w.wait(time.Hour)
		w.act(perdure.VerbEdit, "charge", input(`{"amount":4200}`))
		w.act(perdure.VerbResume, "charge")
		w.claim("charge")
		w.tryReport("charge", 1, done) // a late report of the first run
		w.report("charge", done, output(`{"receipt":7}`))
		w.tryReport("charge", 2, done)   // repeated, because the answer was lost
		w.tryReport("charge", 2, failed) // a contradicting report is refused
		w.run("ship")
		w.undo()
		w.run("charge", "reserve")
	}},
	{"back_and_forth", "a undo; b after a undo; c after a undo; d after b c undo", func(w *world) {
		w.run("a", "b")
		w.claim("c")
		w.undo()
		w.run("b")
		w.redo() // c is still in flight
		w.report("c", done)
		w.claim("b")
		w.undo()
		w.redo()
		w.report("b", done)
		w.run("d")
		w.undo()
		w.run("d", "c", "b", "a")
		w.redo()
		w.run("a", "c", "b", "d")
	}},
	{"output_of_the_job", "a undo; b after a; c after a; output a b c", func(w *world) {
		w.run("a")
		w.act(perdure.VerbSkip, "c")
		w.run("b") // the last one: the output is rendered
		w.undo()
		w.run("a") // an undone job has none
		w.redo()
		w.run("a", "b")
		w.claim("c")
		w.report("c", done, output(`"bad"`)) // an expression fails: the job is done all the same
		w.undo()
	}},
	{"starts_later", "startIn 30s; within 1m; reserve undo; charge undo after reserve; tell", func(w *world) {
		w.wait(10 * time.Second)
		w.cannotClaim("reserve")
		w.undo() // before it has started: settles at once
		w.redo() // waits again
		w.act(perdure.VerbResume, "tell")
		w.run("tell") // an operator starts one step earlier
		w.wait(20 * time.Second)
		w.run("reserve", "charge")
	}},
	{"started_too_late", "onFailure alert:ops,undo; startWithin 30s; reserve undo; charge undo after reserve", func(w *world) {
		w.wait(29 * time.Second)
		w.wait(time.Second) // no run was dispatched: the job is undone
		w.redo()
		w.wait(time.Hour) // an operator wants it: it may start late
		w.run("reserve", "charge")
	}},
	{"parked_because_too_late", "onFailure park; startWithin 30s; reserve undo; charge undo after reserve", func(w *world) {
		w.now = w.now.Add(30 * time.Second)
		w.cannotClaim("reserve")
		w.dueScan()
		w.wait(time.Hour)
		w.resume()
		w.run("reserve", "charge")
	}},
	{"dead_holder", "charge undo attempts 3; ship after charge", func(w *world) {
		w.claim("charge")
		w.wait(2 * time.Second)
		w.holderDies("charge")
		w.undo()
		w.cannotClaim("charge") // what the dead holder started may still act for 8s
		w.wait(8 * time.Second)
		w.run("charge")
	}},
	{"overdue", "within 25s; reserve undo; charge undo after reserve; ship after charge; tell after reserve", func(w *world) {
		w.run("reserve")
		w.wait(20 * time.Second)
		w.claim("charge") // has five seconds left
		w.wait(5 * time.Second)
		w.wait(time.Hour)
		w.resume()
		w.run("charge", "tell")
		w.wait(24 * time.Second)
		w.claim("ship")
		w.report("ship", failed)
		w.act(perdure.VerbGiveUp, "")
	}},
	{"policies", "onFailure alert:ops,undo; greet or skip; wait sleep; ask after wait approval; pay undo after ask attempts 2 or wait:1,alert:ops,undo", func(w *world) {
		w.claim("greet")
		w.report("greet", failed) // optional
		w.wait(tick)
		w.act(perdure.VerbSettle, "ask", as(perdure.Done))
		w.claim("pay")
		w.report("pay", failed, retryAfter(time.Minute))
		w.wait(time.Minute)
		w.claim("pay")
		w.report("pay", failed)
		w.wait(tick)
		w.claim("pay")
		w.report("pay", rejected) // the last rung that acts undoes the job
		w.claim("pay")
		w.report("pay", failed)
		w.wait(2 * tick)
		w.claim("pay")
		w.report("pay", failed)
		w.wait(tick)
		w.claim("pay")
		w.report("pay", rejected) // for an undo, the rung undo parks the step
		w.act(perdure.VerbSettle, "pay", as(perdure.Undone))
	}},
}

func TestTranscripts(t *testing.T) {
	for _, s := range plays {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t, s.definition)
			w.transcript = &transcript{}
			w.transcript.WriteString(s.definition + "\n\n")
			c := w.event(func(ws *Workset) { ws.Submit(perdure.JobID{15: 1}, w.plan) })
			w.logEvent(c, "submit")
			s.play(w)
			file := filepath.Join("testdata", s.name+".txt")
			if *refresh {
				must(t, os.MkdirAll("testdata", 0o755))
				must(t, os.WriteFile(file, []byte(w.transcript.String()), 0o644))
			}
			want, err := os.ReadFile(file)
			must(t, err)
			if string(want) != w.transcript.String() {
				t.Errorf("%s differs (go test -run Transcripts -refresh . and read the difference):\n%s", file, w.transcript)
			}
		})
	}
}
