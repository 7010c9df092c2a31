package service

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/operate"
)

// statsRoom estimates the largest size of statistics.
const statsRoom = 256 << 10

// Stats implements operate.Service.
func (svc *Service) Stats(ctx context.Context) (*operate.Stats, error) {
	if err := admission.Ask(ctx, statsRoom); err != nil {
		return nil, err
	}
	text, err := svc.Store.Stats(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	s := &operate.Stats{Types: []operate.TypeStats{}, Reasons: []operate.ReasonStats{}, Alerts: []operate.AlertStats{}, Agents: []operate.AgentStats{}, Limits: []operate.LimitStats{},
		Series: operate.Series{Every: perdure.Duration(time.Minute), Submitted: []int{}, Done: []int{}, Undone: []int{}, Parked: []int{}, Failed: []int{}}}
	if text == nil {
		return s, nil // not computed yet
	}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("the stored statistics cannot be read: %w", err)
	}
	return s, nil
}
