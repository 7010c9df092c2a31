package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/perdure/perdure"
)

// chargeInput is `with` of the step charge: which order, and no more.
type chargeInput struct {
	Order string `json:"order"`
}

// receipt is what the step charge leaves as its output.
type receipt struct {
	Message string `json:"message"`
}

// newPaymentAgent wraps the payment service. It would be the same value inside of a node's own process;
// here it runs in one of its own, and asks a node for work over REST.
func newPaymentAgent(payment string) *perdure.Agent {
	agent := perdure.NewAgent("payments")
	perdure.Handle(agent, "charge", perdure.Op[chargeInput, receipt]{
		Do: func(ctx context.Context, in chargeInput) (out receipt, err error) {
			body, _ := json.Marshal(in)
			return out, ask(ctx, http.MethodPost, payment+"/charges", body, &out)
		},
		// What was answered is not needed, and may be missing: who charged and did not hear back has
		// an unsure step, and it is undone like one that is done. The key of the do run is enough.
		Undo: func(ctx context.Context, in chargeInput, _ receipt) error {
			url := payment + "/charges/by-key/" + perdure.RunOf(ctx).DoKey + "?order=" + url.QueryEscape(in.Order)
			return ask(ctx, http.MethodDelete, url, nil, nil)
		},
	})
	return agent
}

// ask makes one call on behalf of a run. It does not try again: Perdure does. When the ultimatum passes,
// ctx ends and so does the call; what it returns then is not reported to anyone.
func ask(ctx context.Context, method, url string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	run := perdure.RunOf(ctx)
	req.Header.Set("Idempotency-Key", run.Key)                       // the same in every run of this turn: for deduplication
	req.Header.Set("Perdure-Run", strconv.FormatInt(run.Number, 10)) // grows with every run: the fence
	if deadline, ok := ctx.Deadline(); ok {
		req.Header.Set("Perdure-Remaining-Ms", strconv.FormatInt(time.Until(deadline).Milliseconds(), 10))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return perdure.Failed(err, "noAnswer") // perhaps it has acted, perhaps not
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return perdure.Failed(err, "noAnswer")
	}
	failure := fmt.Errorf("%s %s: %s %s", method, req.URL.Path, resp.Status, bytes.TrimSpace(answer))
	switch {
	case resp.StatusCode == http.StatusNotFound && run.Direction == perdure.Undo:
		return nil // there is nothing to undo
	case resp.StatusCode == http.StatusUnprocessableEntity:
		// The card is declined. Trying again is pointless, and nothing was changed by this run.
		return perdure.NoEffect(perdure.Rejected(failure, "declined"))
	case resp.StatusCode >= 500:
		return perdure.Failed(failure, "http_"+strconv.Itoa(resp.StatusCode))
	case resp.StatusCode >= 400:
		return perdure.Rejected(failure, "http_"+strconv.Itoa(resp.StatusCode))
	case into == nil:
		return nil
	}
	return json.Unmarshal(answer, into)
}
