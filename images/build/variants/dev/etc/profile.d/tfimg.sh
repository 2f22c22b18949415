# A login shell's PATH is Debian's: put the image's Python before it.
case ":$PATH:" in
*:/opt/tensorflow/bin:*) ;;
*) PATH="/opt/tensorflow/bin:/home/tensorflow/.local/bin:$PATH:/usr/local/cuda/bin" ;;
esac
