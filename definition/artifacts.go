package definition

import (
	"bytes"
	"errors"

	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/plain"
)

// artifacts checks the values {"$artifact": …} below n, whose JSON is given. Members that are computed are not known yet.
func (d *decoder) artifacts(n *text.Node, p *text.Pointer, json []byte, templates expr.Templates) {
	if !bytes.Contains(json, []byte(plain.ArtifactName)) {
		return
	}
	d.walkArtifacts(n, p, templates)
}

func (d *decoder) walkArtifacts(n *text.Node, p *text.Pointer, templates expr.Templates) {
	switch n.Kind {
	case text.List:
		for i := range n.Kids {
			d.walkArtifacts(&n.Kids[i], p.Item(i), templates)
		}
	case text.Object:
		if n.Get(plain.ArtifactName) != nil {
			d.artifact(n, p, templates)
			return
		}
		for i := range n.Kids {
			d.walkArtifacts(&n.Kids[i], p.Member(n.Keys[i].Name), templates)
		}
	}
}

// artifact checks one value. For members that are computed it puts in valid ones.
func (d *decoder) artifact(n *text.Node, p *text.Pointer, templates expr.Templates) {
	known := text.Scalar(text.Object, int(n.At), "")
	for i, k := range n.Keys {
		kid := n.Kids[i]
		if _, computed := templates[&n.Kids[i]]; computed {
			switch k.Name {
			case plain.ArtifactName:
				kid = text.Scalar(text.String, int(n.At), anyArtifact)
			case "size":
				kid = text.Scalar(text.Number, int(n.At), "0")
			}
		}
		known.Set(k.Name, kid)
	}
	_, err := plain.ReadArtifact(text.AppendNode(nil, &known))
	bad := (*plain.ArtifactError)(nil)
	if !errors.As(err, &bad) {
		return
	}
	at := n.At
	for i, k := range n.Keys {
		if bad.Pointer == "/"+k.Name {
			at, p = n.Kids[i].At, p.Member(k.Name)
		}
	}
	d.Add(p, at, "%s", bad.Message).WithHint(`{"$artifact": "sha256:…", "size": 52428800}, as perdure artifacts put -o json prints it`)
}

const anyArtifact = plain.ArtifactHashPrefix + "0000000000000000000000000000000000000000000000000000000000000000"
