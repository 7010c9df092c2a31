package definition

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/secret"
	"github.com/perdure/perdure/operate"
)

// notify reads the receivers of notifications.
func (d *decoder) notify(n *text.Node, p *text.Pointer) []kernel.NotifyDefinition {
	const hint = "notify: [{webhook: https://shop.example/hooks, on: [parked, done]}]"
	if n.Kind != text.List {
		d.mismatch(n, p, "a list of receivers").WithHint(hint)
		return nil
	}
	if len(n.Kids) > operate.MaxJobNotify {
		d.AddTooLarge(p, n.At, "%d receivers; at most %d", len(n.Kids), operate.MaxJobNotify)
		return nil
	}
	var list []kernel.NotifyDefinition
	for i := range n.Kids {
		v, p := &n.Kids[i], p.Item(i)
		if v.Kind != text.Object {
			d.mismatch(v, p, "an object with a webhook or a receiver").WithHint(hint)
			continue
		}
		one := d.notifyItem(v, p)
		switch {
		case (one.Webhook == "") == (one.Receiver == ""):
			d.Add(p, v.At, "give either `webhook` or `receiver`").WithHint(hint)
		case slices.ContainsFunc(list, func(o kernel.NotifyDefinition) bool {
			return o.Webhook == one.Webhook && o.Receiver == one.Receiver
		}):
			d.Add(p, v.At, "the receiver %s is named twice", text.Quote(one.Webhook+one.Receiver)).WithHint("name it once, with all changes in on")
		case one.Secret != "" && one.Receiver != "":
			d.Add(p.Member("secret"), v.At, "a receiver of the store has a secret of its own").WithHint("leave secret out")
		}
		list = append(list, one)
	}
	return list
}

func (d *decoder) notifyItem(n *text.Node, p *text.Pointer) (one kernel.NotifyDefinition) {
	for i := range n.Keys {
		k, v := n.Keys[i], &n.Kids[i]
		p := p.Member(k.Name)
		switch k.Name {
		case "webhook":
			if d.string(v, p) {
				if one.Webhook = v.Text; !d.stored {
					if err := operate.CheckWebhookURL(v.Text); err != nil {
						d.Add(p, v.At, "webhook %v", err)
					}
				}
			}
		case "receiver":
			if d.string(v, p) {
				if one.Receiver = v.Text; !operate.IsWebhookName(v.Text) {
					d.Add(p, v.At, "%s is no name of a receiver", text.Quote(v.Text)).WithHint("letters, digits, -, _ and .")
				}
			}
		case "on":
			one.On = d.eventKinds(v, p)
		case "secret":
			if d.string(v, p) {
				name, reference := strings.CutPrefix(v.Text, "${secret.")
				if reference {
					name = strings.TrimSuffix(name, "}")
				}
				if one.Secret = name; !d.stored && (!secret.IsName(name) || v.Text != name && v.Text != secret.Reference(name)) {
					d.Add(p, v.At, "this is no name of a secret").WithHint("name a secret of the nodes, and not the secret itself: secret: SHOP_HOOK, if they have PERDURE_SECRET_SHOP_HOOK; capital letters, digits and _")
				}
			}
		default:
			d.unknown(notifyFields, "notify", k, p)
		}
	}
	return one
}

func (d *decoder) eventKinds(n *text.Node, p *text.Pointer) (kinds []operate.EventKind) {
	hint := "one of " + strings.Join(operate.Texts(operate.JobEventKinds), ", ")
	if n.Kind != text.List {
		d.mismatch(n, p, "a list of changes").WithHint("on: [parked, done]")
		return nil
	}
	if len(n.Kids) == 0 {
		d.Add(p, n.At, "an empty list reports no change").WithHint("on: [parked, done], or leave on out: it reports %s", strings.Join(operate.Texts(operate.DefaultEventKinds), ", "))
		return nil
	}
	for i := range n.Kids {
		v, p := &n.Kids[i], p.Item(i)
		if !d.string(v, p) {
			continue
		}
		kind := operate.EventKind(v.Text)
		switch {
		case !slices.Contains(operate.JobEventKinds, kind):
			d.Add(p, v.At, "%s is no change of a job", text.Quote(v.Text)).WithHint("%s", hint)
		case slices.Contains(kinds, kind):
			d.Add(p, v.At, "%s is named twice", text.Quote(v.Text))
		default:
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// plainKinds sorts kinds, and returns nil for those that are the default.
func plainKinds(kinds []operate.EventKind) []operate.EventKind {
	sorted := slices.Clone(kinds)
	slices.SortFunc(sorted, func(a, b operate.EventKind) int {
		return slices.Index(operate.JobEventKinds, a) - slices.Index(operate.JobEventKinds, b)
	})
	if slices.Equal(sorted, operate.DefaultEventKinds) {
		return nil
	}
	return sorted
}

func appendNotify(b []byte, list []kernel.NotifyDefinition) []byte {
	for i := range list {
		if i == 0 {
			b = append(b, `,"notify":[`...)
		} else {
			b = append(b, ',')
		}
		n := &list[i]
		fields := len(b)
		b = appendText(b, `,"webhook":`, n.Webhook)
		b = appendText(b, `,"receiver":`, n.Receiver)
		for k, kind := range n.On {
			if k == 0 {
				b = append(b, `,"on":[`...)
			} else {
				b = append(b, ',')
			}
			b = text.AppendString(b, string(kind))
		}
		if len(n.On) > 0 {
			b = append(b, ']')
		}
		b = braced(appendText(b, `,"secret":`, n.Secret), fields)
	}
	if len(list) > 0 {
		b = append(b, ']')
	}
	return b
}
