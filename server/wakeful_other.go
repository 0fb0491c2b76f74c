//go:build !linux

package server

import "time"

// wakeful does nothing where it has not been measured.
type wakeful struct{ stop <-chan struct{} }

func (*wakeful) request(time.Duration) {}
func (*wakeful) waited()               {}
