// kubectl as it was before it spoke WebSocket.
package main

import (
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	util.CheckErr(cmd.NewDefaultKubectlCommand().Execute())
}
