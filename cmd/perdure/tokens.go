package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

func (a *app) tokensCmd() *cobra.Command {
	var page operate.PageQuery
	list := func(cmd *cobra.Command, _ []string) error {
		if err := checkPageSize(page.Limit); err != nil {
			return err
		}
		return a.withTarget(cmd, func(ctx context.Context, t *target) error {
			tokens, err := t.ListTokens(ctx, page)
			if err != nil {
				return err
			}
			return a.printTokens(tokens)
		})
	}
	cmd := &cobra.Command{
		Use: "tokens", Aliases: []string{"token"}, Short: "Manage tokens: list, create, rotate, rm", Args: noArgs, RunE: list,
		Long: `Lists tokens, expired ones too. A token identifies a program or a user to a server, and has a user role:

  viewer     reads everything except tokens, sessions and the audit log
  submitter  submits jobs (of the types --type, if any) and reads jobs
  agent      carries out the runs of the agents --agent, and nothing else
  operator   what viewers and submitters may, and all acts
  admin      everything

With --store the command works without a server, which is how the first token is made. As soon as the store
has an admin token, callers on the server's own machine need a token, too.`,
		Example: `  perdure tokens create --name anna --role admin --store sqlite:perdure.db
  perdure tokens create --name ci --role submitter --type order --expires 90d
  perdure tokens
  perdure tokens rotate 8XkqT2mWc0Za --overlap 24h
  perdure tokens rm 8XkqT2mWc0Za`,
	}
	uses(cmd, "server", "store", "output")
	pageFlags(cmd, &page.Limit, &page.Cursor, "tokens")
	addList(cmd, "tokens, expired ones too")
	cmd.AddCommand(a.createTokenCmd(), a.rotateTokenCmd(), a.removeTokenCmd())
	return cmd
}

func (a *app) printTokens(page *perdure.Page[operate.TokenView]) error {
	slices.SortFunc(page.Items, func(x, y operate.TokenView) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), x.CreatedAt.Compare(y.CreatedAt))
	})
	tb, now := a.newTable(), time.Now()
	tb.head("ID", "NAME", "ROLE", "FOR", "GROUPS", "AGE", "EXPIRES", "USED", "BY")
	for i := range page.Items {
		t := &page.Items[i]
		if a.json() {
			if err := a.object(t); err != nil {
				return err
			}
			continue
		}
		expires := "-"
		switch left := t.ExpiresAt.Sub(now); {
		case t.ExpiresAt.IsZero():
		case left <= 0:
			expires = a.st.bad("expired")
		default:
			expires = "in " + span(left)
		}
		used := "-"
		if !t.LastUsedAt.IsZero() {
			used = span(max(now.Sub(t.LastUsedAt), 0)) + " ago"
		}
		only := strings.Join(slices.Concat(t.Types, t.Agents, t.Hosts), ",")
		tb.row(plain(t.ID), plain(t.Name), plain(string(t.Role)), orDash(plain(only)), orDash(plain(strings.Join(t.Groups, ","))), span(now.Sub(t.CreatedAt)), expires, used, plain(t.CreatedBy))
	}
	if len(page.Items) > 0 && !a.json() {
		tb.print(a.out)
	}
	if len(page.Items) == 0 && !a.json() {
		a.talk("there is no token; create one with: perdure tokens create --name NAME --role admin")
	}
	a.more(page.NextCursor)
	return nil
}

func (a *app) createTokenCmd() *cobra.Command {
	var r operate.TokenRequest
	var role string
	var expires duration
	cmd := &cobra.Command{
		Use: "create", Short: "Create a token and print it once", Args: noArgs,
		Long: `Creates a token and prints it on stdout. It is stored as a hash, and cannot be shown again. Its name is the
author of the acts that are performed with it.

Clients send it from --token-file, or from the variable PERDURE_TOKEN. With --store, a missing SQLite file is
created.`,
		Example: `  perdure tokens create --name anna --role admin --store sqlite:perdure.db
  perdure tokens create --name ci --role submitter --type order --expires 90d
  perdure tokens create --name pay-1 --role agent --agent payments > pay-1.token
  perdure tokens create --name h2 --role agent --agent exec --host h2 > h2.token
  perdure tokens create --name ben --role operator --group managers`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Role, r.ExpiresIn, r.Author = operate.UserRole(role), perdure.Duration(expires), author()
			if err := r.Check(); err != nil {
				return asFlags(err)
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				token, err := t.CreateToken(ctx, r)
				if err != nil {
					return err
				}
				return a.printToken(token)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	f := cmd.Flags()
	cmd.Annotations[createsKey] = "true"
	f.StringVar(&r.Name, "name", "", "`NAME` of the token: who or what uses it")
	f.StringVar(&role, "role", "", "user `ROLE`: viewer, submitter, agent, operator, admin")
	f.StringSliceVar(&r.Types, "type", nil, "of a submitter: `TYPE` of jobs that it may submit (repeatable; default: all)")
	f.StringSliceVar(&r.Agents, "agent", nil, "of an agent: `AGENT` whose runs it may carry out (repeatable)")
	f.StringSliceVar(&r.Hosts, "host", nil, "of an agent: `HOST` that it may register, and whose runs it may carry out (repeatable; default: all)")
	f.StringSliceVar(&r.Groups, "group", nil, "`GROUP` for approvals (repeatable)")
	f.Var(&expires, "expires", "expire after this `DURATION` (default: never)")
	restricts(cmd, "type", "agent", "host", "group", "expires")
	ownVariables(cmd, "tokens", "name", "role", "type", "agent", "host", "group")
	_ = cmd.MarkFlagRequired("name")
	_ = cmd.MarkFlagRequired("role")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(operate.Texts(operate.UserRoles), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// asFlags names the flag of a request's field that is at fault.
func asFlags(err error) error {
	var e *perdure.Error
	if !errors.As(err, &e) || len(e.Fields) != 1 {
		return err
	}
	flag := map[string]string{"/name": "name", "/role": "role", "/types": "type", "/agents": "agent", "/hosts": "host", "/groups": "group", "/expiresIn": "expires"}[e.Fields[0].Pointer]
	return &usageError{msg: "--" + flag + " " + e.Fields[0].Message, hint: e.Hint}
}

func (a *app) printToken(t *operate.NewToken) error {
	if a.json() {
		return a.object(t)
	}
	fmt.Fprintln(a.out, t.Token)
	a.talk("token %s of %s, user role %s: keep it secret; it cannot be shown again", t.ID, plain(t.Name), t.Role)
	return nil
}

func (a *app) rotateTokenCmd() *cobra.Command {
	var overlap duration
	cmd := &cobra.Command{
		Use: "rotate ID", Short: "Give a token another secret", Args: argsOf(1, 1, "one ID"),
		Long: `Replaces the secret of a token and prints the new token. For the time --overlap the one before it is valid,
too, so that programs can be switched over. Without it, that one ends within 5 seconds.`,
		Example:           "  perdure tokens rotate 8XkqT2mWc0Za --overlap 24h",
		ValidArgsFunction: a.completeToken,
		RunE: func(cmd *cobra.Command, args []string) error {
			if time.Duration(overlap) > operate.MaxTokenOverlap {
				return usagef("--overlap must be at most %dd", operate.MaxTokenOverlap/(24*time.Hour))
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				token, err := t.RotateToken(ctx, args[0], time.Duration(overlap), author())
				if err != nil {
					return err
				}
				return a.printToken(token)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	cmd.Flags().Var(&overlap, "overlap", "for this `DURATION`, at most 30d, the secret before it stays valid")
	return cmd
}

func (a *app) removeTokenCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm ID…", Aliases: []string{"revoke"}, Short: "Revoke tokens", Args: argsOf(1, -1, "the ids of tokens"),
		Long: `Deletes tokens, and ends the sessions of the console that were started with them. Each node refuses them
within 5 seconds. A server refuses to revoke the last valid token of an admin (exit 8); --store does not.`,
		Example:           "  perdure tokens rm 8XkqT2mWc0Za",
		ValidArgsFunction: a.completeToken,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				for _, id := range args {
					if err := t.DeleteToken(ctx, id, author()); err != nil {
						return err
					}
					a.talk("token %s is revoked", plain(id))
				}
				return nil
			})
		},
	}
	uses(cmd, "server", "store")
	return cmd
}

// completeToken suggests the ids of tokens.
func (a *app) completeToken(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	a.ask(cmd, func(ctx context.Context, t *target) error {
		page, err := t.ListTokens(ctx, operate.PageQuery{Limit: perdure.MaxListLimit})
		if err != nil {
			return err
		}
		for i := range page.Items {
			words = append(words, page.Items[i].ID+"\t"+plain(page.Items[i].Name)+", "+string(page.Items[i].Role))
		}
		return nil
	})
	return words, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) auditCmd() *cobra.Command {
	var q operate.AuditQuery
	var since string
	cmd := &cobra.Command{
		Use: "audit", Short: "Read the audit log: who did what, and what was refused", Args: noArgs,
		Long: `Prints acts, changes of limits, agents, tokens and bulk acts, logins, and requests that were refused, newest
first. Entries are kept for 400 days. ACT is a verb such as undo, or the name of another call such as
putLimit; docs/access.md lists them. An act has one name, whether it was performed or refused.`,
		Example: `  perdure audit --since 24h
  perdure audit --author anna --act undo
  perdure audit --job order-1042
  perdure audit -o json | jq -r 'select(.outcome == "refused") | .address'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPageSize(q.Limit); err != nil {
				return err
			}
			var err error
			if q.Since, err = timeOrAgo("since", since, time.Now()); err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				page, err := t.Audit(ctx, q)
				if err != nil {
					return err
				}
				return a.printAudit(page)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	f := cmd.Flags()
	f.StringVar(&q.Author, "author", "", "by this `AUTHOR`")
	f.StringVar(&q.Act, "act", "", "with this `ACT`")
	f.StringVar(&q.Job, "job", "", "on this `JOB`")
	f.StringVar(&since, "since", "", "from this `TIME` on, or this long ago")
	restricts(cmd, "author", "act", "job", "since")
	_ = cmd.RegisterFlagCompletionFunc("act", cobra.FixedCompletions(kernel.AuditActs, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("job", a.completeJob)
	pageFlags(cmd, &q.Limit, &q.Cursor, "entries")
	return cmd
}

func (a *app) printAudit(page *perdure.Page[operate.AuditEntry]) error {
	tb := a.newTable()
	tb.head("TIME", "AUTHOR", "ACT", "ON", "OUTCOME", "FROM", "REASON")
	for i := range page.Items {
		e := &page.Items[i]
		if a.json() {
			if err := a.object(e); err != nil {
				return err
			}
			continue
		}
		on := plain(e.Target)
		if !e.Job.IsZero() {
			if on = e.Job.String(); e.Target != "" {
				on += "/" + plain(e.Target)
			}
		}
		outcome := string(e.Outcome)
		if e.Outcome == operate.AuditRefused {
			outcome = a.st.bad(strings.TrimSpace(outcome + " " + string(e.Code)))
		}
		author := plain(e.Author)
		if e.OnBehalfOf != "" {
			author += " for " + plain(e.OnBehalfOf)
		}
		act := plain(e.Act)
		if e.Count > 1 {
			act += fmt.Sprintf(" (%d)", e.Count)
		}
		tb.row(e.At.Local().Format(time.DateTime), author, act, orDash(on), outcome, orDash(plain(e.Address)), plain(brief(e.Reason)))
	}
	if len(page.Items) > 0 && !a.json() {
		tb.print(a.out)
	}
	if len(page.Items) == 0 && !a.json() {
		a.talk("the audit log has no such entry")
	}
	a.more(page.NextCursor)
	return nil
}
