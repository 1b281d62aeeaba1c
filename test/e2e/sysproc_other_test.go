//go:build unix && !linux

package e2e

import "syscall"

func childProc() *syscall.SysProcAttr { return nil }
