öMhOnÿd‚¤#2»(½F—¬M}OEÑxîË´w^C¼ð1Mbð°[kÝIúÀdÓ´¾7ôK¿ŸipI$
