package cases

// YAMLCase is a text in YAML, and the JSON of its documents, one a line.
type YAMLCase struct{ Name, Text, Want string }

// YAML are texts and the JSON of their documents, one a line.
var YAML = []YAMLCase{
	{"scalars", "a: 1\nb: -2.50\nc: true\nd: null\ne: ~\nf:\ng: text\nh: 1e3\ni: +7\nj: .5\nk: 5.\nl: -0\nm: 0x1F\nn: 0o17\n",
		`{"a":1,"b":-2.50,"c":true,"d":null,"e":null,"f":null,"g":"text","h":1e3,"i":7,"j":0.5,"k":5.0,"l":-0,"m":31,"n":15}`},
	{"yaml 1.1 words are text", "on: yes\nno: off\ny: n\nt: 12:30:45\nd: 2001-01-01\nip: 127.0.0.1\nv: 1.2.3\n",
		`{"d":"2001-01-01","ip":"127.0.0.1","no":"off","on":"yes","t":"12:30:45","v":"1.2.3","y":"n"}`},
	{"big numbers keep their digits", "a: 123456789012345678901234567890\nb: 1.10\nc: 1e400\nd: 0xFFFFFFFFFFFFFFFFFF\n",
		`{"a":123456789012345678901234567890,"b":1.10,"c":1e400,"d":4722366482869645213695}`},
	{"quotes", `a: 'it''s'` + "\n" + `b: "x\ty\u00e9\U0001F600\x41\ud83d\ude00"` + "\n" + `"c d": 'no \n escape'` + "\n",
		`{"a":"it's","b":"x\tyé😀A😀","c d":"no \\n escape"}`},
	{"folded quotes", "a: \"one\n  two\n\n  three\\\n   four\"\nb: 'one\n  two\n\n\n  three'\n", `{"a":"one two\nthreefour","b":"one two\n\nthree"}`},
	{"plain over lines", "a: one\n  two\n\n  three # no\nb: x\n", `{"a":"one two\nthree","b":"x"}`},
	{"hash and colon in text", "a: b#c\nb: http://x:80/y?z#w\nc: a:b\ne: x # comment\n", `{"a":"b#c","b":"http://x:80/y?z#w","c":"a:b","e":"x"}`},
	{"literal", "a: |\n  one\n   two\n\n  three\nb: |-\n  x\n\nc: |+\n  y\n\nd: |2\n    z\ne: |\nf: 1\n", `{"a":"one\n two\n\nthree\n","b":"x","c":"y\n\n","d":"  z\n","e":"","f":1}`},
	{"folded", "a: >\n  one\n  two\n\n  three\n    four\n  five\nb: >-\n  x\n  y\n", `{"a":"one two\nthree\n  four\nfive\n","b":"x y"}`},
	{"lists", "a:\n- 1\n- 2\nb:\n  - x: 1\n    y: 2\n  -\n    z: 3\n  - - p\n    - q\n  -\nc: []\n", `{"a":[1,2],"b":[{"x":1,"y":2},{"z":3},["p","q"],null],"c":[]}`},
	{"flow", "a: [1, 'x', \"y\", {b: c, \"d\":1, e}, [], {}, ]\nb: {c: [1,\n  2], # comment\n  d: many words\n   here}\n",
		`{"a":[1,"x","y",{"b":"c","d":1,"e":null},[],{}],"b":{"c":[1,2],"d":"many words here"}}`},
	{"flow is JSON", `{"a":[1,2.50,"x\"y",null,true],"b":{}}`, `{"a":[1,2.50,"x\"y",null,true],"b":{}}`},
	{"urls in flow", "a: {u: http://x/y, v: [http://z:1/w]}\n", `{"a":{"u":"http://x/y","v":["http://z:1/w"]}}`},
	{"anchors", "a: &x {p: 1}\nb: *x\nc: &y\n  q: [*x, &z 5]\nd: *y\ne: *z\n", `{"a":{"p":1},"b":{"p":1},"c":{"q":[{"p":1},5]},"d":{"q":[{"p":1},5]},"e":5}`},
	{"merge", "a: &x {p: 1, q: 2}\nb: &y {q: 3, r: 4}\nc:\n  <<: *x\n  p: 9\nd:\n  <<: [*x, *y]\n\"<<\": 1\n", `{"\u003c\u003c":1,"a":{"p":1,"q":2},"b":{"q":3,"r":4},"c":{"p":9,"q":2},"d":{"p":1,"q":2,"r":4}}`},
	{"tags", "a: !!str 5\nb: !!int \"5\"\nc: !!map {}\nd: !!float 1.5\ne: !!str\n", `{"a":"5","b":5,"c":{},"d":1.5,"e":""}`},
	{"documents", "%YAML 1.2\n---\na: 1\n...\n---\n# nothing\n---\nb: 2\n--- \nc: |\n  x\n---\n", "{\"a\":1}\n{\"b\":2}\n{\"c\":\"x\\n\"}"},
	{"crlf", "a: 1\r\nb:\r\n  - x\r\n  - |\r\n    y\r\n    z\r\n", `{"a":1,"b":["x","y\nz\n"]}`},
	{"comments", "# a\na: 1 # b\n  # c\nb: # d\n  # e\n  c: 2\n# f\n", `{"a":1,"b":{"c":2}}`},
	{"expressions", "a: ${input.a}\nb: x ${input.b} y\nc: \"${a ? 1 : 2}\"\nd: ['${x}']\n", `{"a":"${input.a}","b":"x ${input.b} y","c":"${a ? 1 : 2}","d":["${x}"]}`},
	{"bare", "just text\n", `"just text"`},
	{"quoted key with colon", "\"a: b\": 1\n'c': 2\n", `{"a: b":1,"c":2}`},
	{"space before colon", "a : 1\n", `{"a":1}`},
	{"dash text", "a: -x\nb: --flag\nc: [-]\n", `{"a":"-x","b":"--flag","c":["-"]}`},
	{"indented list of maps", "steps:\n    - name: a\n      run: |\n        x\n    - name: b\n", `{"steps":[{"name":"a","run":"x\n"},{"name":"b"}]}`},
	{"no final newline", "a: |\n  x", `{"a":"x\n"}`},
}
