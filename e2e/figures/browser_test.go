package figures

import "testing"

func measureBrowser(t *testing.T, g *grid, r *report) {}
