package hostagent

import "time"

// Defaults and bounds of Config.
const (
	DefaultSlots     = 10
	MaxSlots         = 1000
	DefaultHeartbeat = time.Minute
	DefaultKeep      = time.Hour
	DefaultMinFree   = 64 << 20
)
