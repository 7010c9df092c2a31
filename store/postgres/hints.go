package postgres

type hints struct{}

func (h *hints) start(*Store) {}
func (h *hints) stop()        {}
func (h *hints) note(bool)    {}
