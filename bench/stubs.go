package main

import "context"

func buildTemporal(context.Context, *runner) error { return nil }
