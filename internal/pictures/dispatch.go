package main

import (
	"fmt"
	"slices"
	"strings"
)

// modes and lefts explain two types of dispatch, constant by constant, in their order.
var (
	modes = [][2]string{
		{"repeatOnly", "return runs that the claim was granted before"},
		{"ownSteps", "grant steps that this transaction makes ready"},
		{"urgentSteps", "the same, unless the store has more urgent ones"},
		{"searchStore", "search the store"},
	}
	lefts = [][2]string{
		{"nothingReady", "no ready step, as far as is known"},
		{"moreReady", "perhaps more ready steps"},
		{"limitFull", "steps that wait for room under a limit"},
	}
)

func drawDispatch(src *source) (*canvas, error) {
	for typ, list := range map[string][][2]string{"claimMode": modes, "searchResult": lefts} {
		var names []string
		for _, m := range list {
			names = append(names, m[0])
		}
		if have := src.packages[inDispatch].consts[typ]; !slices.Equal(names, have) {
			return nil, fmt.Errorf("the constants of dispatch.%s are %v; the picture has %v", typ, have, names)
		}
	}
	c := newCanvas(890, 590, "Dispatch: how a ready step meets a waiting claim",
		"A claim waits in the queue of its agent. A wake-up makes the agent due, and a writer takes its claims into a transaction. The transaction searches the steps that it has made ready itself, and those of the store; it locks and counts the limits, grants runs, saves and commits. Then the claims are answered. A claim that is granted nothing goes back and waits.")
	c.text(12, 26, "l", heading, "How a ready step meets a waiting claim")
	const a, b, d, w = 12, 350, 690, 188

	c.box("box", a, 52, w, 52, line{name, "a claim arrives"}, line{small, "max runs, time to wait"})
	c.box("box", b, 52, w, 52, line{name, "a wake-up"}, line{code, "Queue.Wake"})
	c.box("box", a, 158, w, 52, line{name, "waiting"}, line{code, "agentQueue.waiting"})
	c.box("main", b, 158, w, 52, line{name, "taken"}, line{code, "Transaction.Dispatch"})
	c.box("box", b, 262, w, 52, line{name, "limits locked and counted"}, line{code, "limits.lockNeeded"})
	c.box("box", b, 346, w, 52, line{name, "runs granted"}, line{code, "Workset.Claim"})
	c.box("box", b, 430, w, 52, line{name, "saved and committed"}, line{code, "Tx.Save"})
	c.box("end", a, 430, w, 52, line{name, "answered: runs"}, line{code, "Transaction.End"})
	c.box("stop", a, 300, w, 52, line{name, "answered: nothing"}, line{code, "Queue.Leave"})
	c.box("box", d, 104, w, 52, line{name, "steps just made ready"}, line{small, "by this transaction"})
	c.box("box", d, 206, w, 52, line{name, "ready steps in the store"}, line{code, "Finder.Ready"})

	c.arrow("a", point{66, 104}, point{66, 158})
	c.text(74, 135, "l", code, "Queue.Wait")
	c.arrow("a", point{b, 78}, point{250, 78}, point{250, 134}, point{170, 134}, point{170, 158})
	c.text(260, 98, "l", small, "makes the")
	c.text(260, 113, "l", small, "agent due")
	c.arrow("a", point{a + w, 174}, point{b, 174})
	c.text(275, 167, "", code, "Queue.Take")
	c.arrow("a", point{b, 196}, point{a + w, 196})
	c.text(275, 213, "", small, "granted nothing:")
	c.text(275, 228, "", code, "ReturnEarly, End")
	c.arrow("a", point{66, 210}, point{66, 300})
	c.text(74, 262, "l", small, "its time is over")
	c.arrow("a", point{d, 130}, point{600, 130}, point{600, 174}, point{b + w, 174})
	c.arrow("a", point{d, 232}, point{600, 232}, point{600, 194}, point{b + w, 194})
	c.text(608, 178, "l", small, "candidates, in the")
	c.text(608, 193, "l", small, "order of")
	c.text(656, 193, "l", code, "ClaimLess")
	c.arrow("a", point{b + w/2, 210}, point{b + w/2, 262})
	c.text(b+w/2+8, 240, "l", code, "Transaction.find")
	c.arrow("a", point{b + w/2, 314}, point{b + w/2, 346})
	c.text(b+w/2+8, 334, "l", code, "Transaction.offer")
	c.arrow("a", point{b + w/2, 398}, point{b + w/2, 430})
	c.arrow("a", point{b, 456}, point{a + w, 456})
	c.text(275, 449, "", code, "Claim.Answer")

	const x = 600
	c.text(x, 292, "l", name, "Wake-ups come from")
	for i, l := range []string{
		"commits of this node: steps are ready,",
		"permits were released, a limit changed",
		"other nodes, by LISTEN/NOTIFY",
		"the supervisor, which polls: a wake-up",
		"that was lost costs time, no more",
	} {
		c.text(x, 311+16*float64(i), "l", small, l)
	}
	c.text(x, 408, "l", name, "A claim that is leaving")
	for i, l := range []string{"Its time ended while it was taken:", "its transaction answers it, with the", "runs that it grants, if any."} {
		c.text(x, 427+16*float64(i), "l", small, l)
	}

	y := 516.0
	c.text(12, y, "l", name, "What a transaction may do for a claim")
	for i, m := range modes {
		c.text(12, y+18+16*float64(i), "l", code, m[0])
		c.text(104, y+18+16*float64(i), "l", small, m[1])
	}
	c.text(480, y, "l", name, "What the latest search of an agent left")
	for i, m := range lefts {
		c.text(480, y+18+16*float64(i), "l", code, m[0])
		c.text(580, y+18+16*float64(i), "l", small, m[1])
	}
	c.text(480, y+18+48, "l", small, "After nothingReady, a new claim may wait 20 ms for its search.")
	c.height = y + 80
	return c, c.checkCode(src, inDispatch, inKernel)
}

// checkCode returns an error unless each text in the style of code names something in one of these packages.
func (c *canvas) checkCode(src *source, dirs ...string) error {
	for _, text := range c.codes {
		for _, one := range strings.Split(text, ", ") {
			if !slices.ContainsFunc(dirs, func(dir string) bool { return src.packages[dir].has(one) }) {
				return fmt.Errorf("the packages %v have no %s", dirs, one)
			}
		}
	}
	return nil
}
