package memory

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) kernel.Store { return New() })
}

func TestTimeNeverRunsBack(t *testing.T) {
	storetest.Clock(t, func(_ *testing.T, wall func() time.Time) kernel.Store { return New(WithClock(wall)) })
}

func TestMail(t *testing.T) {
	storetest.Mail(t, func(t *testing.T) (kernel.Store, func(*kernel.Plan) (perdure.Submitted, error)) {
		s := New()
		return s, func(plan *kernel.Plan) (perdure.Submitted, error) {
			return s.Post(t.Context(), perdure.JobID(uuid.Must(uuid.NewV7())), plan)
		}
	})
}
