package sim

import "slices"

// InScope are the rows of the fault matrix (docs/reliability.md) that a campaign must cover: the campaign fails if none
// of its schedules has covered one of them.
var InScope = []string{
	"F001", "F002", "F003", "F004", "F005", "F006", "F007", "F008", "F009", "F011", "F013", "F015",
	"F017", "F018", "F019", "F020", "F021", "F022", "F023", "F025", "F026", "F027", "F028", "F029", "F030", "F031", "F032",
	"F035", "F036", "F037", "F038", "F039", "F040", "F041", "F042", "F043", "F044", "F045", "F046", "F049", "F050", "F054",
	"F055", "F056", "F057", "F059", "F060", "F061", "F062", "F063", "F064", "F065", "F066", "F068",
	"F070", "F071", "F072", "F073", "F074", "F075", "F076", "F080", "F081", "F082", "F084",
	"F087", "F088", "F089", "F090", "F091", "F092", "F093", "F095", "F096",
	"F115", "F118", "F119", "F120", "F122", "F134", "F135", "F136", "F137", "F138", "F142", "F149", "F155", "F156", "F163", "F164", "F165", "F168", "F169", "F170",
	"F171", "F172", "F173", "F174", "F175", "F176", "F178", "F183", "F187", "F205", "F206", "F230", "F231", "F232", "F233", "F234", "F235", "F238", "F239", "F260", "F266", "F275",
	"F285", "F288", "F290", "F291", "F292", "F300", "F301", "F302", "F303", "F310", "F311", "F312", "F313", "F314", "F315", "F317", "F331", "F332", "F345",
}

// Missed returns the rows in scope that were not covered.
func Missed(hits map[string]int) []string {
	return slices.DeleteFunc(slices.Clone(InScope), func(row string) bool { return hits[row] > 0 })
}

// Shrink removes everything that a schedule does not need to fail, and returns what that was.
func Shrink(seed uint64, c Config, parts []string) (leftOut []string) {
	c.Lines = nil
	fails := func(leftOut []string) bool {
		c.Without = leftOut
		res, err := Play(seed, c)
		return err != nil || len(res.Violations) > 0
	}
	leftOut = slices.Clone(c.Without)
	for _, p := range parts {
		if more := append(slices.Clone(leftOut), p); fails(more) {
			leftOut = more
		}
	}
	return leftOut
}
