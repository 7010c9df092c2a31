package memory

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) kernel.Store { return New() })
}

func TestClock(t *testing.T) {
	storetest.Clock(t, func(_ *testing.T, wall func() time.Time) kernel.Store { return New(WithClock(wall)) })
}
