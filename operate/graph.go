package operate

// Graph is a drawing of a job's steps, in pixels, with the origin in the upper left corner. It depends on the job's
// definition alone: it does not change while the job runs.
type Graph struct {
	Hash         string      `json:"hash"` // of the definition without key, priority, labels and input
	Width        int         `json:"width"`
	Height       int         `json:"height"`
	NodeWidth    int         `json:"nodeWidth"`
	NodeHeight   int         `json:"nodeHeight"`
	Nodes        []GraphNode `json:"nodes"`                  // in the order of the definition
	Edges        []GraphEdge `json:"edges"`                  // by from, then by to
	EdgesLeftOut int         `json:"edgesLeftOut,omitempty"` // the longest edges of a definition that has very many
}

// GraphNode is a step in a drawing. X and Y are the upper left corner of its box.
type GraphNode struct {
	Name   string `json:"name"`
	X      int    `json:"x"`
	Y      int    `json:"y"`
	Agent  string `json:"agent"`
	Action string `json:"action,omitempty"`
	Undo   bool   `json:"undo,omitempty"` // the step has an undo
}

// GraphEdge leads from a step to one that follows it, both as indexes of nodes. Points has x and y of each point in
// turn.
type GraphEdge struct {
	From   int   `json:"from"`
	To     int   `json:"to"`
	Points []int `json:"points"`
}
