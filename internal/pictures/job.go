package main

import (
	"fmt"
	"strings"
)

// lane is a part of Perdure in the picture of a job's way.
type lane struct {
	dir   string
	lines []line
}

const (
	program = iota
	host
	api
	services
	schedule
	dispatching
	rules
	storing
)

var lanes = []lane{
	program:     {"", []line{{name, "program"}, {small, "or command line"}}},
	host:        {"internal/agenthost", []line{{name, "agenthost"}, {small, "runs handlers"}}},
	api:         {"internal/rest", []line{{name, "rest"}, {small, "HTTP"}}},
	services:    {"internal/service", []line{{name, "service"}, {small, "Service"}}},
	schedule:    {"internal/scheduler", []line{{name, "scheduler"}, {small, "transactions"}}},
	dispatching: {"internal/dispatch", []line{{name, "dispatch"}, {small, "Queue"}}},
	rules:       {"internal/kernel", []line{{name, "kernel"}, {small, "Workset"}}},
	storing:     {"", []line{{name, "store"}, {small, "Store, Tx"}}},
}

// message is one line of the picture: a call from one lane to another, an answer, or a remark.
type message struct {
	kind     kind
	from, to int
	text     string
	calls    ref // of a call: what is called
	route    string
}

type kind uint8

const (
	section     kind = iota // a heading
	request                 // an HTTP request: route is in the strings of internal/rest
	calling                 // a call: the package of the lane "from" calls what calls names
	answering               // an answer
	remark                  // a text at the lane "from"
	transaction             // one transaction begins
	committed               // and ends
)

var inKernel, inDispatch, inScheduler, inService = "internal/kernel", "internal/dispatch", "internal/scheduler", "internal/service"

var jobWay = []message{
	{kind: section, text: "1  A job is submitted"},
	{kind: request, from: program, to: api, text: "POST /v1/jobs", route: "/v1/jobs"},
	{kind: calling, from: api, to: services, text: "SubmitWithKey", calls: ref{inService, "Service.SubmitWithKey"}},
	{kind: calling, from: services, to: services, text: "definition.Compiler.Parse: text to plan", calls: ref{"definition", "Compiler.Parse"}},
	{kind: calling, from: services, to: schedule, text: "Submit", calls: ref{inScheduler, "Scheduler.Submit"}},
	{kind: calling, from: schedule, to: dispatching, text: "Put, Take", calls: ref{inDispatch, "Queue.Take"}},
	{kind: transaction},
	{kind: calling, from: schedule, to: storing, text: "Update: begin, lock, read the clock", calls: ref{inKernel, "Store.Update"}},
	{kind: calling, from: schedule, to: rules, text: "Submit", calls: ref{inKernel, "Workset.Submit"}},
	{kind: answering, from: rules, to: schedule, text: "Changes"},
	{kind: calling, from: schedule, to: storing, text: "Save, then COMMIT", calls: ref{inKernel, "Tx.Save"}},
	{kind: committed},
	{kind: answering, from: schedule, to: program, text: "201, after the commit"},

	{kind: section, text: "2  Its first step is dispatched to a claim"},
	{kind: request, from: host, to: api, text: "POST /v1/agents/{agent}/claim", route: "/v1/agents/{agent}/claim"},
	{kind: calling, from: api, to: services, text: "Claim", calls: ref{inService, "Service.Claim"}},
	{kind: calling, from: services, to: schedule, text: "Claim", calls: ref{inScheduler, "Scheduler.Claim"}},
	{kind: calling, from: schedule, to: dispatching, text: "Wait, Take", calls: ref{inDispatch, "Queue.Wait"}},
	{kind: transaction},
	{kind: calling, from: schedule, to: dispatching, text: "Dispatch", calls: ref{inDispatch, "Transaction.Dispatch"}},
	{kind: calling, from: dispatching, to: storing, text: "Ready: search", calls: ref{inKernel, "Finder.Ready"}},
	{kind: calling, from: dispatching, to: rules, text: "Claim", calls: ref{inKernel, "Workset.Claim"}},
	{kind: calling, from: schedule, to: storing, text: "Save, then COMMIT", calls: ref{inKernel, "Tx.Save"}},
	{kind: committed},
	{kind: calling, from: schedule, to: dispatching, text: "End", calls: ref{inDispatch, "Transaction.End"}},
	{kind: answering, from: schedule, to: host, text: "runs, each with key, input and lock"},

	{kind: section, text: "3  The run, its heartbeats and its report, which may bring the next claim"},
	{kind: remark, from: host, text: "the handler acts"},
	{kind: request, from: host, to: api, text: "POST /v1/heartbeats", route: "/v1/heartbeats"},
	{kind: calling, from: schedule, to: rules, text: "Beat: a later lock end", calls: ref{inKernel, "Workset.Heartbeat"}},
	{kind: request, from: host, to: api, text: "POST /v1/reports", route: "/v1/reports"},
	{kind: calling, from: api, to: services, text: "Report", calls: ref{inService, "Service.Report"}},
	{kind: calling, from: services, to: schedule, text: "Report", calls: ref{inScheduler, "Scheduler.Report"}},
	{kind: transaction},
	{kind: calling, from: schedule, to: rules, text: "Report: settled, next ready", calls: ref{inKernel, "Workset.Report"}},
	{kind: calling, from: schedule, to: dispatching, text: "TakeWaiting", calls: ref{inDispatch, "Queue.TakeWaiting"}},
	{kind: calling, from: schedule, to: dispatching, text: "Dispatch", calls: ref{inDispatch, "Transaction.Dispatch"}},
	{kind: calling, from: schedule, to: storing, text: "Save, then COMMIT", calls: ref{inKernel, "Tx.Save"}},
	{kind: committed},
	{kind: answering, from: schedule, to: host, text: "accepted, and the next runs"},

	{kind: section, text: "4  The last step is settled, and so is the job"},
	{kind: request, from: program, to: api, text: "GET /v1/jobs/{id}", route: "/v1/jobs/{id}"},
	{kind: calling, from: api, to: services, text: "Job", calls: ref{inService, "Service.Job"}},
	{kind: calling, from: services, to: schedule, text: "Follow", calls: ref{inScheduler, "Scheduler.Follow"}},
	{kind: answering, from: services, to: program, text: "200: settled, done"},
}

// noReport is what happens if no report comes: the supervisor's part.
var noReport = []struct {
	dir   string
	calls ref
}{
	{"internal/supervisor", ref{inScheduler, "Scheduler.SweepExpired"}},
	{inScheduler, ref{inKernel, "Workset.Expire"}},
}

const (
	laneWidth  = 110.0
	laneFirst  = 62.0
	messageGap = 23.0
)

func laneX(i int) float64 { return laneFirst + laneWidth*float64(i) }

func drawJob(src *source) (*canvas, error) {
	for i := range jobWay {
		if err := checkMessage(src, &jobWay[i]); err != nil {
			return nil, err
		}
	}
	for _, n := range noReport {
		if err := src.checkCall(n.dir, n.calls); err != nil {
			return nil, err
		}
	}
	c := newCanvas(laneX(len(lanes)-1)+laneFirst, 0, "The way of a job through the packages", describeJob())
	const first = 84.0
	y, began := first, 0.0
	for _, m := range jobWay { // the shades of the transactions are behind everything
		y += height(m.kind)
		switch m.kind {
		case transaction:
			began = y - 6
		case committed:
			c.height = y + 100
			x := laneX(schedule) - 12
			c.rect("band", x, began, laneX(storing)+12-x, y-began, 4)
		}
	}
	c.height = y + 74
	for i, l := range lanes {
		c.lifeline(laneX(i), 60, y+10)
		class := "box"
		if i == rules {
			class = "main"
		}
		c.box(class, laneX(i)-50, 14, 100, 46, l.lines...)
	}
	y = first
	for _, m := range jobWay {
		y += height(m.kind)
		c.message(m, y)
	}
	for i, l := range []string{
		"Shaded: one transaction. A call has the name of its method; a dashed arrow is an answer. Agent hosts in the node call the service without HTTP.",
		"If no report comes: the supervisor calls Scheduler.SweepExpired when the lock has ended; Workset.Expire ends the run as failed, and the ladder decides.",
	} {
		c.text(12, y+40+17*float64(i), "l", small, l)
	}
	return c, nil
}

func height(k kind) float64 {
	switch k {
	case section:
		return 30
	case transaction, committed:
		return 10
	}
	return messageGap
}

func (c *canvas) message(m message, y float64) {
	from, to := laneX(m.from), laneX(m.to)
	switch m.kind {
	case section:
		c.text(12, y, "l", call.heading(), m.text)
	case remark:
		c.text(from+6, y, "l", answer, m.text)
	case request, calling:
		if m.from == m.to {
			c.arrow("a", point{from, y - 10}, point{from + 16, y - 10}, point{from + 16, y + 1}, point{from + 1, y + 1})
			c.text(from+22, y, "l", call, m.text)
			return
		}
		c.text(from+7, y-6, "l", call, m.text)
		c.arrow("a", point{from, y}, point{to, y})
	case answering:
		c.text(from-7, y-6, "r", answer, m.text)
		c.arrow("answer", point{from, y}, point{to, y})
	}
}

// heading is a heading that covers thin lines.
func (style) heading() style { return style{class: "h over", size: 14, bold: true} }

func checkMessage(src *source, m *message) error {
	switch m.kind {
	case request:
		if !src.packages["internal/rest"].strings[m.route] {
			return fmt.Errorf("internal/rest has no route %q", m.route)
		}
	case calling:
		return src.checkCall(lanes[m.from].dir, m.calls)
	}
	return nil
}

func describeJob() string {
	var parts []string
	for _, m := range jobWay {
		switch m.kind {
		case section:
			parts = append(parts, m.text+".")
		case request, calling:
			parts = append(parts, lanes[m.from].lines[0].text+" to "+lanes[m.to].lines[0].text+": "+m.text+".")
		}
	}
	return strings.Join(parts, " ")
}
