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

// chargeInput is the input of the step charge: only the order's id.
type chargeInput struct {
	Order string `json:"order"`
}

// receipt is the output of the step charge.
type receipt struct {
	Message string `json:"message"`
}

// newPaymentAgent wraps the payment service. The same value would work in a node's own process. Here it runs in a
// process of its own, which claims runs from a node over REST.
func newPaymentAgent(payment string) *perdure.Agent {
	agent := perdure.NewAgent("payments")
	perdure.Handle(agent, "charge", perdure.Op[chargeInput, receipt]{
		Do: func(ctx context.Context, in chargeInput) (out receipt, err error) {
			body, _ := json.Marshal(in)
			return out, ask(ctx, http.MethodPost, payment+"/charges", body, &out)
		},
		// The output of the do is not needed, and may be missing: a charge whose answer was lost leaves an unsure step,
		// which is undone like one that is done. The key of the do run suffices.
		Undo: func(ctx context.Context, in chargeInput, _ receipt) error {
			url := payment + "/charges/by-key/" + perdure.RunOf(ctx).DoKey + "?order=" + url.QueryEscape(in.Order)
			return ask(ctx, http.MethodDelete, url, nil, nil)
		},
	})
	return agent
}

// ask makes one call for a run. It does not retry, because Perdure does. At the deadline ctx ends, and with it the call;
// its result is not reported then.
func ask(ctx context.Context, method, url string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	run := perdure.RunOf(ctx)
	req.Header.Set("Idempotency-Key", run.Key)                       // the same for all runs of this turn: for deduplication
	req.Header.Set("Perdure-Run", strconv.FormatInt(run.Number, 10)) // increases with every run: the fence
	if deadline, ok := ctx.Deadline(); ok {
		req.Header.Set("Perdure-Remaining-Ms", strconv.FormatInt(time.Until(deadline).Milliseconds(), 10))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return perdure.Failed(err, "noAnswer") // the service may have acted
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
		// The card is declined. A retry is pointless, and this run has changed nothing.
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
