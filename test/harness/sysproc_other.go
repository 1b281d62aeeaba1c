//go:build unix && !linux

package harness

import "syscall"

func serverProc(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Setpgid: true}
}
