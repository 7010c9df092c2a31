package memory

import (
	"testing"

	"perdure"
	"perdure/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) perdure.Store { return New() })
}
