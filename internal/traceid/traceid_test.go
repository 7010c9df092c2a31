package traceid

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/runcontext"
)

var job = perdure.JobID(uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057"))

// The ids are those that the documentation tells how to compute with sha256sum.
func TestIDsAreHashesOfNames(t *testing.T) {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	trace, span := OfJob(job)
	if want := hash(job.String()); trace.String() != want[:32] || hex.EncodeToString(span[:]) != want[32:48] {
		t.Errorf("job: %v %x, want %s", trace, span, want)
	}
	if run := OfRun(job, "charge", 3); hex.EncodeToString(run[:]) != hash(job.String() + "/charge/3")[:16] {
		t.Errorf("run: %x", run)
	}
	at := time.UnixMicro(1_700_000_000_000_001)
	if undo := OfReopening(job, at); hex.EncodeToString(undo[:]) != hash(job.String() + "/reopened/1700000000000001")[:16] {
		t.Errorf("undo: %x", undo)
	}
}

func TestParentIsReadAgain(t *testing.T) {
	trace, span := OfJob(job)
	for _, sampled := range []bool{true, false} {
		gotTrace, gotSpan, gotSampled, ok := Parse(Parent(trace, span, sampled))
		if !ok || gotTrace != trace || gotSpan != span || gotSampled != sampled {
			t.Errorf("%v %v %v %v", gotTrace, gotSpan, gotSampled, ok)
		}
	}
}

const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// What is not well formed is ignored, as the specification of W3C Trace Context demands.
func TestMalformedParentIsIgnored(t *testing.T) {
	for text, want := range map[string]bool{
		good:                       true,
		"":                         false,
		good + "-x":                false, // version 00 has no more fields
		"01" + good[2:]:            true,
		"01" + good[2:] + "-later": true,
		"01" + good[2:] + "later":  false,
		"ff" + good[2:]:            false,
		"0g" + good[2:]:            false,
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01": false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		"00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": false,
		good[:54]: false,
	} {
		if _, _, _, ok := Parse(text); ok != want {
			t.Errorf("%q: %v, want %v", text, ok, want)
		}
		if got := Of(With(context.Background(), text)) != ""; got != want {
			t.Errorf("context of %q: %v, want %v", text, got, want)
		}
	}
	if got := Of(With(context.Background(), "01"+good[2:]+"-and more")); got != good {
		t.Errorf("kept %q", got)
	}
}

// A handler that submits a job need pass nothing: the job belongs to the handler's run.
func TestHandlersSubmitWithTheirRun(t *testing.T) {
	ctx := runcontext.With(context.Background(), &perdure.Run{Traceparent: good}, time.Time{}, nil)
	if got := Of(ctx); got != good {
		t.Errorf("got %q", got)
	}
	other := "00-0bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	if got := Of(With(ctx, other)); got != other {
		t.Errorf("got %q", got)
	}
	if got := Of(context.Background()); got != "" {
		t.Errorf("got %q", got)
	}
}
