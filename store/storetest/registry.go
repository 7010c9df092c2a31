package storetest

import (
	"time"

	"perdure"
)

var registering = []check{
	{"Registry/Nodes", nodes},
	{"Registry/Seen", seen},
}

func nodes(s *suite) {
	list := func(want ...perdure.Node) {
		s.Helper()
		got, err := s.store.Nodes(ctx)
		s.must(err)
		s.equal("nodes", got, want)
	}
	list()
	one := perdure.Node{ID: "n1", Host: "h", PID: 77, Version: "v1", Listen: "127.0.0.1:7420", Agents: []string{"http", "shell"}, Since: at(0), SeenAt: at(time.Second)}
	two := perdure.Node{ID: "n2", Host: "h", SeenAt: at(time.Minute)}
	s.must(s.store.PutNode(ctx, two))
	s.must(s.store.PutNode(ctx, one))
	list(one, two)
	one.SeenAt, one.Agents, one.Listen = at(time.Hour), nil, ""
	s.must(s.store.PutNode(ctx, one))
	list(one, two)
	three := perdure.Node{ID: "n0", SeenAt: at(24*time.Hour + time.Minute)}
	s.must(s.store.PutNode(ctx, three))
	list(three, one, two)
	three.SeenAt = three.SeenAt.Add(time.Microsecond) // two was last seen more than a day before: forgotten
	s.must(s.store.PutNode(ctx, three))
	list(three, one)
	s.must(s.store.DropNode(ctx, "n1"))
	s.must(s.store.DropNode(ctx, "n9"))
	list(three)
}

func seen(s *suite) {
	list := func(want ...perdure.Seen) {
		s.Helper()
		got, err := s.store.Seen(ctx)
		s.must(err)
		s.equal("seen", got, want)
	}
	row := func(agent, holder string, after time.Duration) perdure.Seen {
		return perdure.Seen{Agent: agent, Holder: holder, At: at(after)}
	}
	list()
	s.must(s.store.PutSeen(ctx, nil))
	s.must(s.store.PutSeen(ctx, []perdure.Seen{row("shell", "b", 1), row("http", "b", time.Second), row("http", "a", 0)}))
	list(row("http", "a", 0), row("http", "b", time.Second), row("shell", "b", 0))
	s.must(s.store.PutSeen(ctx, []perdure.Seen{row("http", "a", time.Minute)}))
	list(row("http", "a", time.Minute), row("http", "b", time.Second), row("shell", "b", 0))
	s.must(s.store.PutSeen(ctx, []perdure.Seen{row("ftp", "c", 24*time.Hour+time.Millisecond)}))
	list(row("ftp", "c", 24*time.Hour+time.Millisecond), row("http", "a", time.Minute), row("http", "b", time.Second))
}
