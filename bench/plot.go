package main

type curve struct {
	workload string
	sizes    []int
	most     func(Kind) int
}

var points []curve

func (r *runner) plots() map[string]string { return nil }
